"""The body of a review while it arrives, and the limit on the memory of all requests and answers.

The FastAPI route and the protocol feed it with the bytes that they receive.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO

from webhook.server.limits import DEFAULT_LIMITS, Limits


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

    Call `feed` with each piece while `wants_more` is true, and `release` in any case.
    """

    __slots__ = ("_budget", "_kept", "_limits", "complete", "length", "over_budget")

    def __init__(self, budget: MemoryBudget, limits: Limits) -> None:
        self._limits = limits
        self._budget = budget
        # Its bytes are not copied to read them. Those of a bytearray are: a review of 250 KB then
        # takes five times as long.
        self._kept = BytesIO()
        self.length = 0
        """The number of bytes that were fed, including discarded bytes after `max_review_bytes`."""
        self.complete = False
        """Whether the body was received to its end."""
        self.over_budget = False
        """Whether the memory budget was exhausted before the body was complete."""

    def feed(self, chunk: bytes | memoryview, *, is_last: bool) -> None:
        """Add a piece of the body.

        A complete body is kept even if the budget is exhausted, because the caller processes it
        immediately.
        """
        self.length += len(chunk)
        free_bytes = self._limits.max_review_bytes - self._kept.tell()
        self._budget.used_bytes += self._kept.write(chunk[:free_bytes])
        self.complete = is_last
        is_short = self.length < self._limits.guaranteed_body_bytes
        self.over_budget = self._budget.exhausted and not (is_last or is_short)

    @property
    def wants_more(self) -> bool:
        """Whether more of the body is needed for the answer."""
        return not (self.complete or self.over_budget)

    @property
    def data(self) -> bytes:
        """The received bytes, but no more than the first `max_review_bytes`."""
        return self._kept.getvalue()

    def release(self) -> None:
        """Discard the data and subtract its length from the budget. Further calls do nothing."""
        self._budget.used_bytes -= self._kept.tell()
        self._kept = BytesIO()
