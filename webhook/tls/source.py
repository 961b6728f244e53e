"""The interface that both certificate sources implement.

`DynamicSource` issues certificates. `FileSource` reads them from files.
"""

from __future__ import annotations

import ssl
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol


class CertificateSource(Protocol):
    """A source that keeps the certificate of a TLS context up to date, without a restart."""

    @property
    def context(self) -> ssl.SSLContext:
        """The server's TLS context. A new certificate is loaded into this same object.

        A connection that is open or in its handshake keeps its certificate.
        """

    @property
    def expires(self) -> datetime:
        """The time at which the served certificate expires."""

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the served certificate in hex."""

    @property
    def ready(self) -> bool:
        """Whether the source has loaded a certificate that has not expired.

        The server is not ready without it.
        """

    @property
    def problem(self) -> str:
        """The current errors, or an empty text. A source with errors may still serve."""

    @property
    def bundle(self) -> bytes | None:
        """The CAs (PEM) that podsettle itself has to register with the API server.

        None if another component registers them. Empty while podsettle does not know them yet; the
        caller must not change the registered bundle then.
        """

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the certificate up to date while the block runs."""
