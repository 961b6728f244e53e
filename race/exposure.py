"""How long containers were exposed: from their start until the runtime's state was answered.

A container whose first process lives for longer than that cannot lose its exit code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MICROSECONDS = 1_000
BOUNDS_MS = (50, 100, 250, 500)
_FIELDS = 6


@dataclass(frozen=True, slots=True)
class Exposure:
    """The exposure of one container, in milliseconds."""

    from_begin_ms: float
    """Since the call of `start`. The process starts after that."""
    from_end_ms: float
    """Since `start` returned. The process started before that."""
    was_stopped: bool
    """Whether the process had ended when the state was answered."""


def read_exposures(lines: Iterable[str]) -> Iterator[Exposure]:
    """Yield the exposure of each container in the file that the provocation writes.

    Each `start` is followed by the state query that belongs to it.
    """
    started: dict[str, tuple[int, int]] = {}
    for line in lines:
        fields = line.split()
        if len(fields) != _FIELDS:
            continue
        command, container, begin, end, _, status = fields
        if command == "start":
            started[container] = (int(begin), int(end))
        elif container in started:
            start_begin, start_end = started.pop(container)
            yield Exposure(
                (int(end) - start_begin) / _MICROSECONDS,
                (int(end) - start_end) / _MICROSECONDS,
                status == "stopped",
            )


@dataclass(frozen=True, slots=True)
class ExposureSummary:
    """The exposures of all containers on one runtime."""

    containers: int
    stopped: int
    """Containers that had ended when the state was answered."""
    median_ms: float
    longest_ms: float
    """Since `start` returned."""
    longest_from_begin_ms: float
    above: Mapping[int, int]
    """How many containers were exposed for more than so many milliseconds after the return."""

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for the results file."""
        return {
            "containers": self.containers,
            "stopped": self.stopped,
            "median ms": round(self.median_ms, 1),
            "longest ms": round(self.longest_ms),
            "longest from begin ms": round(self.longest_from_begin_ms),
            "above ms": {str(bound): count for bound, count in self.above.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ExposureSummary:
        """Return the summary of a results file."""
        return cls(
            data["containers"],
            data["stopped"],
            data["median ms"],
            data["longest ms"],
            data["longest from begin ms"],
            {int(bound): count for bound, count in data["above ms"].items()},
        )


def summarize(exposures: Iterable[Exposure]) -> ExposureSummary | None:
    """Return the summary, or None if there is no exposure."""
    found = list(exposures)
    if not found:
        return None
    lasting = sorted(each.from_end_ms for each in found)
    return ExposureSummary(
        containers=len(found),
        stopped=sum(each.was_stopped for each in found),
        median_ms=lasting[len(lasting) // 2],
        longest_ms=lasting[-1],
        longest_from_begin_ms=max(each.from_begin_ms for each in found),
        above={bound: sum(value > bound for value in lasting) for bound in BOUNDS_MS},
    )
