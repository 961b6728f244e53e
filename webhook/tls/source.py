"""The interface of the certificate sources: issued by podsettle, or read from files."""

from __future__ import annotations

import ssl
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol


class CertificateSource(Protocol):
    """A source that keeps the certificate of a TLS context up to date, without a restart."""

    @property
    def context(self) -> ssl.SSLContext:
        """The server's TLS context. New certificates are loaded into this same object.

        A connection that is open or in its handshake keeps the certificate that it began with.
        """

    @property
    def expires(self) -> datetime:
        """When the served certificate expires."""

    @property
    def ready(self) -> bool:
        """Whether the served certificate is one that a client could accept now."""

    @property
    def problem(self) -> str:
        """The current error as a sentence; empty for none. The source may serve all the same."""

    @property
    def bundle(self) -> bytes | None:
        """The CAs (PEM) that podsettle itself has to register with the API server.

        None where another component registers them. Empty while they are not known yet: then the
        registered bundle must not be changed.
        """

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the certificate up to date while the block runs."""
