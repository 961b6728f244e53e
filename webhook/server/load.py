"""How much the server has taken on, and when that is too much."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field

LIMIT = 1000
"""Whole reviews that wait for a namespace or an image, or for their client to read. An API server
has 600 under way at most, unless it was told otherwise (--max-requests-inflight and
--max-mutating-requests-inflight)."""

_LONGEST_WAIT = 0.25
"""The part of a review's deadline that it may wait for its turn. One thread does all the work, so
a wait like that says that more comes in than can be answered; without an end to it, each answer
would come too late to be of use."""


@dataclass(slots=True)
class Load:
    """The requests that the server has taken in and could not answer at once."""

    limit: int = LIMIT
    tasks: Collection[object] = ()
    """uvicorn's own record of them: one task for each."""
    aside: set[object] = field(default_factory=set)
    """What stands for those that are no work yet, or none for reviews to wait for: reviews whose
    body has not come to its end, and requests of other routes. Whoever can open a thousand
    connections and send nothing more must not keep others from being answered."""

    @property
    def under_way(self) -> int:
        """How many there are."""
        return len(self.tasks)

    @property
    def reviews(self) -> int:
        """How many are reviews that have come to their end."""
        return len(self.tasks) - len(self.aside)

    async def elsewhere(self) -> AsyncIterator[None]:
        """A dependency of the routes that are not /mutate: their requests are put aside."""
        request = object()
        self.aside.add(request)
        try:
            yield
        finally:
            self.aside.discard(request)

    def is_too_much(self, waited: float, deadline: float) -> bool:
        """Whether a review should not be looked at that waited for its turn, both in seconds."""
        return self.reviews > self.limit or waited > deadline * _LONGEST_WAIT
