"""The body of a review while it arrives, and the limit on the memory of all requests and answers.

The FastAPI route and the protocol feed it with the bytes that they receive.
"""

from __future__ import annotations

from dataclasses import dataclass

from webhook.server.limits import DEFAULT_LIMITS, Limits

_MIN_PIECE_BYTES = 4 * 1024
"""The length up to which pieces are joined at once. A client can send pieces of one byte, and each
object takes 40 bytes more."""


@dataclass(slots=True)
class MemoryBudget:
    """A count of bytes in use, with a limit. The count can exceed it; callers check `exhausted`."""

    limit_bytes: int = DEFAULT_LIMITS.memory_bytes
    used_bytes: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether the bytes in use exceed the limit."""
        return self.used_bytes > self.limit_bytes


class ReviewBody:
    """A request body that counts against a memory budget until it is released.

    Call `feed` with each piece while `wants_more` is true, `finish` after the last piece, and
    `release` in any case.
    """

    __slots__ = ("_budget", "_limits", "_pieces", "_size", "complete", "length", "over_budget")

    def __init__(self, budget: MemoryBudget, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._budget = budget
        # A body in one piece is not copied, and another one once. A buffer that grows is moved.
        # This causes forty page faults for a review of 250 KB.
        self._pieces: list[bytes] = []
        self._size = 0
        self.length = 0
        """The number of bytes that were fed, including discarded bytes after `max_review_bytes`."""
        self.complete = False
        """Whether the body was received to its end."""
        self.over_budget = False
        """Whether the memory budget was exhausted before the body was complete."""

    def feed(self, chunk: bytes | memoryview) -> None:
        """Add a piece of the body."""
        self.length += len(chunk)
        kept = bytes(chunk[: self._limits.max_review_bytes - self._size])
        self._size += len(kept)
        self._budget.used_bytes += len(kept)
        if self._pieces and len(self._pieces[-1]) < _MIN_PIECE_BYTES:
            self._pieces[-1] += kept
        elif kept:
            self._pieces.append(kept)
        if self._budget.exhausted and self.length >= self._limits.guaranteed_body_bytes:
            self.over_budget = True

    def finish(self) -> None:
        """Mark the body as complete.

        A complete body is kept even if the budget is exhausted, because the caller processes it
        immediately.
        """
        self.complete = True
        self.over_budget = False

    @property
    def wants_more(self) -> bool:
        """Whether more of the body is needed for the answer."""
        return not (self.complete or self.over_budget)

    @property
    def data(self) -> bytes:
        """The received bytes, but no more than the first `max_review_bytes`."""
        # The whole body replaces the pieces, so that memory holds it only once.
        self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    def release(self) -> None:
        """Discard the data and subtract its length from the budget. Further calls do nothing."""
        self._budget.used_bytes -= self._size
        self._pieces, self._size = [], 0
