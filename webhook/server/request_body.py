"""The body of a review while it is read."""

from __future__ import annotations

from starlette.types import Receive

from webhook.server.load_shedding import MemoryBudget

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Longer reviews are read to the end and their pods admitted unchanged. The API server accepts
objects up to 3 MiB, and encodes some characters as six (JSON escapes in Go)."""
MAX_REQUEST_BYTES = 8 * MAX_BODY_BYTES
"""Reading stops here: six times 3 MiB, and as much again for the rest of a review."""
GUARANTEED_BODY_BYTES = 16 * 1024
"""Bytes of each body that are kept even if the memory budget is exhausted. A connection costs more
than that. The uid, which an answer needs, is in the first few hundred bytes."""


class Body:
    """A body that counts against a memory budget until it is released.

    A cancelled `read` keeps the data that has arrived.
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
        """Number of bytes received, including those that were not kept."""
        self.complete = False
        """Whether the body was read to its end."""
        self.disconnected = False
        """Whether the client disconnected before the end."""
        self.over_budget = False
        """Whether reading stopped because the memory budget was exhausted."""

    async def read(self, receive: Receive) -> None:
        """Read to the end of the body, up to MAX_REQUEST_BYTES, or until the budget is exhausted.

        The last chunk is always kept, because the caller uses it without waiting.
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
        """The body as far as it was kept: at most MAX_BODY_BYTES."""
        if len(self._chunks) > 1:
            # Replaces the chunks, so that the body is not held twice.
            self._chunks = [b"".join(self._chunks)]
        return self._chunks[0][:MAX_BODY_BYTES] if self._chunks else b""

    def release(self) -> None:
        """Drop the data and return its bytes to the budget."""
        self._chunks = []
        self._budget.used_bytes -= self._reserved
        self._reserved = 0
