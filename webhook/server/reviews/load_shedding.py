"""Load shedding: limits on the memory and on the number of requests that the server works on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from webhook.server.limits import DEFAULT_LIMITS


@dataclass(slots=True)
class MemoryBudget:
    """A count of bytes in use, with a limit. The count can exceed it; callers check `exhausted`."""

    limit_bytes: int = DEFAULT_LIMITS.memory_bytes
    used_bytes: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether the bytes in use exceed the limit."""
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
    """Counts of the requests that the server has begun to process and has not answered yet."""

    limit: int = DEFAULT_LIMITS.max_waiting_reviews
    """The maximum of `reviews`."""
    max_queue_share: float = DEFAULT_LIMITS.max_queue_share
    """The maximum share of its deadline for which a review may be queued."""
    max_queue_seconds: float = DEFAULT_LIMITS.max_queue_seconds
    """The maximum time for which a review may be queued."""
    requests: int = 0
    """All requests in progress, for the metric. A review that is answered at once is not counted,
    because nothing can read the count meanwhile."""
    reviews: int = 0
    """Complete reviews that wait for a look-up, or for their client to read the answer. Incomplete
    reviews do not count against the limit. If they counted, a client could open a thousand
    connections, send only headers, and cause the server to shed the API server's reviews."""

    @contextmanager
    def waiting_review(self) -> Iterator[None]:
        """Count a complete review that waits while the block runs."""
        self.reviews += 1
        try:
            yield
        finally:
            self.reviews -= 1

    async def count_request(self) -> AsyncIterator[None]:
        """Count a request in progress. This is a FastAPI dependency of all routes."""
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    def is_overloaded(self, queued_seconds: float, deadline_seconds: float) -> bool:
        """Return whether to shed a review that was queued for a time and has a deadline."""
        return (
            self.reviews > self.limit
            or queued_seconds > deadline_seconds * self.max_queue_share
            or queued_seconds > self.max_queue_seconds
        )
