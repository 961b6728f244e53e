"""Client certificates for /mutate. With them, only the API server can send reviews.

The API server presents a certificate if its `--admission-control-config-file` configures one.
Probes and Prometheus present none, so the TLS handshake requests a certificate but does not require
it. The handshake fails if a client presents a certificate that another CA has signed.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from webhook.server.protocol import CLIENT_CERTIFICATE_KEY
from webhook.server.responses import refuse


class ClientCAError(Exception):
    """A file that is not a readable CA bundle."""


def request_client_certificate(context: ssl.SSLContext, ca: Path) -> None:
    """Make TLS handshakes request a client certificate that a CA in the PEM file `ca` has signed.

    Raises ClientCAError.
    """
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError:
        raise ClientCAError(f"{ca}: is not a bundle of PEM certificates") from None
    except OSError as error:
        raise ClientCAError(f"{ca}: {error.strerror}") from None
    context.verify_mode = ssl.CERT_OPTIONAL


class RequireClientCertificate:
    """ASGI middleware that answers 403 to clients without a certificate."""

    def __init__(self, app: ASGIApp, count_refused: Callable[[int], None]) -> None:
        self._app = app
        self._count_refused = count_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403, or pass the request to the application."""
        if CLIENT_CERTIFICATE_KEY in scope.get("state", ()):
            await self._app(scope, receive, send)
        else:
            self._count_refused(403)
            await refuse(
                send,
                403,
                "this path needs a client certificate that the CA in --client-ca has signed; "
                "configure one with the API server's --admission-control-config-file",
            )
