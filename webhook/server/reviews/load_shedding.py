"""Load shedding: the limit on the memory of requests and answers."""

from __future__ import annotations

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
