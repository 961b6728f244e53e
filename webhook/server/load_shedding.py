"""How much the server takes on: requests under way, and the memory of bodies and answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

BUDGET_BYTES = 32 * 1024 * 1024
"""Bytes. With what connections and decoding add beside it, a hundred and fifty senders of the
longest pods at once bring the process to some 240 MB. Previews add up to 150 MB in a process of
their own, 32 MiB of bodies and 32 MiB of answers, and what is kept of images and pull secrets
32 MiB; the chart gives both processes 512 MiB."""
MAX_REVIEWS_IN_FLIGHT = 1000
"""Whole reviews that wait for a namespace or an image, or for their client to read. An API server
has 600 under way at most, unless it was told otherwise (--max-requests-inflight and
--max-mutating-requests-inflight)."""

MAX_QUEUE_SHARE = 0.25
"""The part of a review's deadline that it may wait for its turn. One thread does all the work, so
a wait like that says that more comes in than can be answered; without an end to it, each answer
would come too late to be of use."""


@dataclass(slots=True)
class MemoryBudget:
    """How many bytes of them are used_bytes, and whether that is too much."""

    limit_bytes: int = BUDGET_BYTES
    used_bytes: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether nothing more may be kept."""
        return self.used_bytes > self.limit_bytes

    @contextmanager
    def reserve(self) -> Iterator[Callable[[int], None]]:
        """What takes so many bytes more; all of them are given back at the end of the block."""
        taken = 0

        def add(count: int) -> None:
            nonlocal taken
            taken += count
            self.used_bytes += count

        try:
            yield add
        finally:
            self.used_bytes -= taken


@dataclass(slots=True)
class InFlight:
    """The requests that the server has taken in and could not answer at once."""

    limit: int = MAX_REVIEWS_IN_FLIGHT
    tasks: Collection[object] = ()
    """uvicorn's own record of them: one task for each."""
    excluded: set[object] = field(default_factory=set)
    """What stands for those that are no work yet, or none for reviews to wait for: reviews whose
    body has not come to its end, and requests of other routes. Whoever can open a thousand
    connections and send nothing more must not keep others from being answered."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.tasks)

    @property
    def review_count(self) -> int:
        """How many are reviews that have come to their end."""
        return len(self.tasks) - len(self.excluded)

    async def exclude(self) -> AsyncIterator[None]:
        """A dependency of the routes that are not /mutate: their requests are put excluded."""
        request = object()
        self.excluded.add(request)
        try:
            yield
        finally:
            self.excluded.discard(request)

    def is_overloaded(self, waited: float, deadline: float) -> bool:
        """Whether a review should not be looked at that waited for its turn, both in seconds."""
        return self.review_count > self.limit or waited > deadline * MAX_QUEUE_SHARE
