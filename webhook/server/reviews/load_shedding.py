"""Load shedding: the limit on the memory of requests and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
