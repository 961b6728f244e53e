"""Load shedding: limits on the memory and on the number of requests that the server works on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

BUDGET_BYTES = 32 * 1024 * 1024
"""One budget is for reviews and their answers, a second one for bodies of previews. With
connections and decoding, 150 senders of the longest pods bring the process to about 240 MB. Answers
to previews take another 32 MiB, cached images and pull secrets 32 MiB, and the worker process for
previews up to 150 MB. The chart limits the container to 512 MiB."""

MAX_REVIEWS_IN_FLIGHT = 1000
"""Complete reviews that wait for a look-up or for their client to read. An API server has up to 600
requests in flight by default (--max-requests-inflight, --max-mutating-requests-inflight)."""

MAX_QUEUE_SHARE = 0.25
"""The share of its deadline that a review may be queued. One thread answers all reviews, so a
longer queue means that more reviews arrive than can be answered. Without this limit every answer
would then be late."""


@dataclass(slots=True)
class MemoryBudget:
    """A count of bytes in use, with a limit. Users check `exhausted` themselves."""

    limit_bytes: int = BUDGET_BYTES
    used_bytes: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether no more data should be kept."""
        return self.used_bytes > self.limit_bytes

    @contextmanager
    def reserve(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that adds bytes to the count. The end of the block subtracts them."""
        added = 0

        def add(count: int) -> None:
            nonlocal added
            added += count
            self.used_bytes += count

        try:
            yield add
        finally:
            self.used_bytes -= added


@dataclass(slots=True)
class InFlight:
    """The requests that the server has begun and not yet answered."""

    limit: int = MAX_REVIEWS_IN_FLIGHT
    tasks: Collection[object] = ()
    """uvicorn's set of tasks, one for each request."""
    excluded: set[object] = field(default_factory=set)
    """One object for each request that the limit does not count: reviews with incomplete bodies,
    and requests for other routes. A client that opens a thousand connections and sends only headers
    must not cause reviews of others to be shed."""

    @property
    def count(self) -> int:
        """The number of all requests in flight."""
        return len(self.tasks)

    @property
    def review_count(self) -> int:
        """The number of complete reviews in flight."""
        return len(self.tasks) - len(self.excluded)

    async def exclude(self) -> AsyncIterator[None]:
        """Exclude a request from the limit. A FastAPI dependency of all routes but /mutate."""
        request = object()
        self.excluded.add(request)
        try:
            yield
        finally:
            self.excluded.discard(request)

    def is_overloaded(self, queued: float, deadline: float) -> bool:
        """Return whether to answer a review unread. Its time in the queue and its deadline are in
        seconds.
        """
        return self.review_count > self.limit or queued > deadline * MAX_QUEUE_SHARE
