"""Client certificates for /mutate. With them, only the API server can send reviews.

The API server presents a certificate if its `--admission-control-config-file` configures one.
Probes and Prometheus present none, so the TLS handshake requests a certificate but does not require
it. The handshake fails if a client presents a certificate that another CA has signed.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from webhook.server.reviews.request import Refusal

NO_CLIENT_CERTIFICATE = Refusal(
    403,
    "this path needs a client certificate that the CA in --client-ca has signed; "
    "configure one with the API server's --admission-control-config-file",
)
"""The answer to a review of a client that presented no certificate."""


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
