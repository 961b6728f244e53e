"""What serves a certificate: one interface, whoever makes the certificate."""

from __future__ import annotations

import ssl
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol


class CertificateSource(Protocol):
    """Keeps the certificate of a TLS context up to date, without a restart."""

    @property
    def context(self) -> ssl.SSLContext:
        """The server's TLS context. New certificates are loaded into this very object.

        A connection that is open, or in its handshake, keeps the certificate it began with.
        """

    @property
    def expires(self) -> datetime:
        """When the certificate that is served now ends."""

    @property
    def ready(self) -> bool:
        """Whether there is a certificate that a client could accept at this moment."""

    @property
    def problem(self) -> str:
        """What is wrong now, for people; empty where nothing is. Serving may go on all the same."""

    @property
    def bundle(self) -> bytes | None:
        """The CAs, in PEM, that podsettle itself has to register with the API server.

        None where someone else registers them. Empty while they are not known yet: then what is
        registered has to stay as it is.
        """

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the certificate up to date while the block runs."""
