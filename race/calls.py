"""The calls of a provoked handler: the evidence that the runtime started containers by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_MICROSECONDS = 1_000
_BEGIN, _END, _FIELDS = 2, 3, 6


@dataclass(frozen=True, slots=True)
class HandlerCalls:
    """How often the runtime called a provoked handler's `start` and `state`."""

    starts: int
    shortest_start_ms: float
    """On containerd, `S` holds each start for at least 400 ms."""
    state_queries: int

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for the results file."""
        return {
            "starts": self.starts,
            "shortest start ms": round(self.shortest_start_ms, 1),
            "state queries": self.state_queries,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HandlerCalls:
        """Return the calls of a results file."""
        return cls(data["starts"], data["shortest start ms"], data["state queries"])


def read_calls(lines: Iterable[str]) -> HandlerCalls:
    """Return the calls in the file that a provocation writes."""
    durations, queries = [], 0
    for fields in map(str.split, lines):
        if len(fields) != _FIELDS:
            continue
        if fields[0] == "start":
            durations.append((int(fields[_END]) - int(fields[_BEGIN])) / _MICROSECONDS)
        else:
            queries += fields[0] == "state"
    return HandlerCalls(len(durations), min(durations, default=0.0), queries)
