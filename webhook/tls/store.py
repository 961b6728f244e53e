"""Where the certificates are kept that all replicas share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from webhook.tls.authority import Life


class StoreError(Exception):
    """What is stored cannot be read or written now; the message says why."""


class Store(Protocol):
    """Named contents, read as a whole and replaced as a whole."""

    @property
    def title(self) -> str:
        """What and where it is, for people."""

    async def read(self) -> Mapping[str, bytes] | None:
        """What is stored, or None where there is no place to store it. Raises StoreError."""

    async def write(self, contents: Mapping[str, bytes]) -> None:
        """Put contents in the place of what was read last.

        Raises StoreError, also where someone else has written since that read.
        """


@dataclass(frozen=True, slots=True)
class StoredCertificates:
    """Certificates of podsettle's own making, in a Secret that the replicas share."""

    service: str
    """The Service that the API server calls."""
    secret: str
    life: Life
