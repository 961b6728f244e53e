"""The client certificate that /mutate can demand: reviews then come from the API server alone.

The API server shows one where the kubeconfig of its `--admission-control-config-file` says so.
Probes and Prometheus have none, so the handshake asks for a certificate and goes on without; one
of another CA ends it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from webhook.server.protocol import CLIENT_CERTIFICATE_KEY
from webhook.server.responses import refuse


class ClientCAError(Exception):
    """A file that is no CA bundle."""


def ask_for_client_certificate(context: ssl.SSLContext, ca: Path) -> None:
    """Make handshakes ask for a client certificate of one of the CAs in a PEM file.

    Raises ClientCAError.
    """
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError:
        raise ClientCAError(f"{ca}: is not a bundle of PEM certificates") from None
    except OSError as error:
        raise ClientCAError(f"{ca}: {error.strerror}") from None
    context.verify_mode = ssl.CERT_OPTIONAL


class DemandClientCertificate:
    """An ASGI application before another one, which it keeps from clients without a certificate."""

    def __init__(self, app: ASGIApp, count_refused: Callable[[int], None]) -> None:
        self._app = app
        self._count_refused = count_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if CLIENT_CERTIFICATE_KEY in scope.get("state", ()):
            await self._app(scope, receive, send)
        else:
            self._count_refused(403)
            await refuse(
                send,
                403,
                "this needs a client certificate of the CA that podsettle was given by "
                "--client-ca; see --admission-control-config-file of the API server",
            )
