"""How much the server has taken on, and when that is too much."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

LIMIT = 1000
"""Requests under way. An API server has 600 at most, unless it was told otherwise
(--max-requests-inflight and --max-mutating-requests-inflight)."""

_LONGEST_WAIT = 0.25
"""The part of a review's deadline that it may wait for its turn. One thread does all the work, so
a wait like that says that more comes in than can be answered; without an end to it, each answer
would come too late to be of use."""


@dataclass(slots=True)
class Load:
    """The requests that the server has taken in and not answered yet."""

    limit: int = LIMIT
    tasks: Collection[object] = ()
    """uvicorn's own record of them: one task for each."""

    @property
    def under_way(self) -> int:
        """How many there are."""
        return len(self.tasks)

    def is_too_much(self, waited: float, deadline: float) -> bool:
        """Whether a review should not be looked at that waited for its turn, both in seconds."""
        return len(self.tasks) > self.limit or waited > deadline * _LONGEST_WAIT
