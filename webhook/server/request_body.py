"""The reading of request bodies, limited by a memory budget."""

from __future__ import annotations

from starlette.types import Receive

from webhook.server.load_shedding import MemoryBudget

MAX_BODY_BYTES = 4 * 1024 * 1024
"""The pod of a longer review is admitted unchanged. The API server accepts objects of up to 3 MiB.
In a review they can be longer, because Go's JSON encoder escapes some characters with six bytes."""
MAX_REQUEST_BYTES = 8 * MAX_BODY_BYTES
"""A longer body is refused. An escaped object of 3 MiB has up to 18 MiB, and the rest of its review
may have 14 MiB."""
GUARANTEED_BODY_BYTES = 16 * 1024
"""Number of bytes of each body that are received even if the memory budget is exhausted. They
contain the uid, which an answer needs. A connection takes more memory than these bytes."""


class Body:
    """A request body that counts against a memory budget until it is released.

    After `read` is cancelled, `data` contains the bytes that have been received.
    """

    __slots__ = (
        "_budget",
        "_chunks",
        "_reserved",
        "complete",
        "disconnected",
        "length",
        "over_budget",
    )

    def __init__(self, budget: MemoryBudget) -> None:
        self._chunks: list[bytes] = []
        self._budget = budget
        self._reserved = 0
        self.length = 0
        """The number of received bytes, including discarded bytes after MAX_BODY_BYTES."""
        self.complete = False
        """Whether the body was read to its end."""
        self.disconnected = False
        """Whether the client disconnected before it sent the whole body."""
        self.over_budget = False
        """Whether reading stopped because the memory budget was exhausted."""

    async def read(self, receive: Receive) -> None:
        """Read until the body ends, exceeds MAX_REQUEST_BYTES, or exhausts the memory budget.

        The last chunk is kept even if the budget is exhausted, because the caller then processes
        the body immediately.
        """
        while not self.complete and self.length <= MAX_REQUEST_BYTES:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnected = True
                return
            chunk: bytes = message.get("body", b"")
            if self.length <= MAX_BODY_BYTES:
                self._chunks.append(chunk)
                self._reserved += len(chunk)
                self._budget.used_bytes += len(chunk)
            self.length += len(chunk)
            self.complete = not message.get("more_body", False)
            if (
                self._budget.exhausted
                and not self.complete
                and self.length >= GUARANTEED_BODY_BYTES
            ):
                self.over_budget = True
                return

    @property
    def data(self) -> bytes:
        """The received bytes, but no more than the first MAX_BODY_BYTES."""
        if len(self._chunks) > 1:
            # The joined chunk replaces the others, so that memory holds the body only once.
            self._chunks = [b"".join(self._chunks)]
        return self._chunks[0][:MAX_BODY_BYTES] if self._chunks else b""

    def release(self) -> None:
        """Discard the data and subtract its length from the budget."""
        self._chunks = []
        self._budget.used_bytes -= self._reserved
        self._reserved = 0
