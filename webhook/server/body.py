"""The body of a review, as far as it has come."""

from __future__ import annotations

from starlette.types import Receive

MAX_BODY = 4 * 1024 * 1024
"""Bytes that are kept of a body. A longer review is read to its end and its pod admitted unchanged:
the API server takes objects up to 3 MiB, and writes some characters as six (Go's JSON escapes)."""
MOST_BYTES = 8 * MAX_BODY
"""Bytes after which no more is read: six times 3 MiB, and as much again as a review adds."""


class Body:
    """A body that is being read. Reading may be cancelled: what has come is there."""

    __slots__ = ("_chunks", "abandoned", "complete", "length")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self.length = 0
        """Bytes that came."""
        self.complete = False
        """Whether its end came."""
        self.abandoned = False
        """Whether the client hung up before."""

    async def read(self, receive: Receive) -> None:
        """Read it to its end, or until more came than a review can have."""
        while not self.complete and self.length <= MOST_BYTES:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.abandoned = True
                return
            chunk: bytes = message.get("body", b"")
            if self.length <= MAX_BODY:
                self._chunks.append(chunk)
            self.length += len(chunk)
            self.complete = not message.get("more_body", False)

    @property
    def kept(self) -> bytes:
        """What came, or its beginning where that is too long."""
        return b"".join(self._chunks)[:MAX_BODY]
