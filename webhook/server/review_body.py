"""The body of a review while it arrives, without input or output of its own.

The FastAPI route and the protocol feed it with the bytes that they receive.
"""

from __future__ import annotations

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


class ReviewBody:
    """A request body that counts against a memory budget until it is released.

    Call `feed` with each piece while `wants_more` is true, `finish` after the last piece, and
    `release` in any case.
    """

    __slots__ = ("_budget", "_data", "complete", "length", "over_budget")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        # A body in one piece is not copied. Further pieces are appended to a bytearray and not to a
        # list, because a client can send pieces of one byte, and each object takes 40 bytes more.
        self._data: bytes | bytearray = b""
        self.length = 0
        """The number of bytes that were fed, including discarded bytes after MAX_BODY_BYTES."""
        self.complete = False
        """Whether the body was received to its end."""
        self.over_budget = False
        """Whether the memory budget was exhausted before the body was complete."""

    def feed(self, chunk: bytes) -> None:
        """Add a piece of the body."""
        self.length += len(chunk)
        kept = chunk[: MAX_BODY_BYTES - len(self._data)]
        self._budget.used_bytes += len(kept)
        if not self._data:
            self._data = kept
        else:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += kept
        if self._budget.exhausted and self.length >= GUARANTEED_BODY_BYTES:
            self.over_budget = True

    def finish(self) -> None:
        """Mark the body as complete.

        A complete body is kept even if the budget is exhausted, because the caller processes it
        immediately.
        """
        self.complete = True
        self.over_budget = False

    @property
    def too_long(self) -> bool:
        """Whether the body is longer than MAX_REQUEST_BYTES."""
        return self.length > MAX_REQUEST_BYTES

    @property
    def wants_more(self) -> bool:
        """Whether more of the body is needed for the answer."""
        return not (self.complete or self.over_budget or self.too_long)

    @property
    def data(self) -> bytes:
        """The received bytes, but no more than the first MAX_BODY_BYTES."""
        if isinstance(self._data, bytearray):
            # The copy replaces the bytearray, so that memory holds the body only once.
            self._data = bytes(self._data)
        return self._data

    def release(self) -> None:
        """Discard the data and subtract its length from the budget. Further calls do nothing."""
        self._budget.used_bytes -= len(self._data)
        self._data = b""
