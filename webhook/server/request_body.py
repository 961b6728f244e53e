"""The body of a review, as far as it has come."""

from __future__ import annotations

from starlette.types import Receive

from webhook.server.load_shedding import MemoryBudget

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Bytes that are kept of a body. A longer review is read to its end and its pod admitted unchanged:
the API server takes objects up to 3 MiB, and writes some characters as six (Go's JSON escapes)."""
MAX_REQUEST_BYTES = 8 * MAX_BODY_BYTES
"""Bytes after which no more is read: six times 3 MiB, and as much again as a review adds."""
GUARANTEED_BODY_BYTES = 16 * 1024
"""Bytes of each body that there is room for in any case: a connection costs more than that. The
uid, by which a review is answered, comes in the first few hundred."""


class Body:
    """A body that is being read. Reading may be cancelled: what has come is there.

    It takes up room until it is released.
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
        """Bytes that came."""
        self.complete = False
        """Whether its end came."""
        self.disconnected = False
        """Whether the client hung up before."""
        self.over_budget = False
        """Whether there was no room for the rest."""

    async def read(self, receive: Receive) -> None:
        """Read it to its end, or until more came than a review can have or there is room for.

        The last piece is always kept: whoever reads it goes on at once.
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
        """What came, or its beginning where that is too long."""
        if len(self._chunks) > 1:
            # In place of the pieces, not beside them: it may be held for a while.
            self._chunks = [b"".join(self._chunks)]
        return self._chunks[0][:MAX_BODY_BYTES] if self._chunks else b""

    def release(self) -> None:
        """Keep nothing of it any longer."""
        self._chunks = []
        self._budget.used_bytes -= self._reserved
        self._reserved = 0
