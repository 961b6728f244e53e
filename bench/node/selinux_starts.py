"""How long CreateContainer takes for volumes of different sizes, unsettled and settled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.format import COUNT
from bench.measurement import Measurement
from bench.node.selinux_cases import NO_LEVEL, SETTLED, UNSETTLED, Requests
from bench.node.selinux_node import CrioNode, Start
from bench.node.selinux_pods import OTHER_LEVEL, Json, volume_pod
from bench.report_table import ReportTable

FIRST, LATER, DROPPED, OTHER = "first start", "later starts", "later, no caches", "another level"
FIRST_LABELS, LATER_LABELS = "labels written first", "labels written later"
NO_VOLUME = "no volume"
_KINDS = {"plain": UNSETTLED, "settled": SETTLED}
"""The volume of a kind of pods has its name and the number of its files."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The amount of work for the figures."""

    sizes: tuple[int, ...]
    later_starts: int
    """Of each pod, with the caches and without."""


def row(kind: str, files: int) -> str:
    """Return the name of a row."""
    return f"{kind}, {files:,} files"


def measure(node: CrioNode, profile: Profile, directory: Path) -> ReportTable:
    """Start containers on a node whose CRI-O has podsettle's drop-in. Return the times."""
    table = ReportTable("starts", "CreateContainer, by volume")
    requests = Requests(directory)
    without = [_started(node, requests.of(volume_pod())) for _ in range(profile.later_starts + 1)]
    table.rows[NO_VOLUME] = {FIRST: _seconds(without[:1]), LATER: _seconds(without[1:])}
    for files in profile.sizes:
        for prefix, kind in _KINDS.items():
            table.rows[row(kind, files)] = _row(node, requests, kind, f"{prefix}-{files}", profile)
    files = max(profile.sizes)
    volume = f"settled-{files}"
    starts = [
        _started(node, requests.named(NO_LEVEL, volume), volume)
        for _ in range(profile.later_starts + 1)
    ]
    table.rows[row(NO_LEVEL, files)] = {
        FIRST: _seconds(starts[:1]),
        LATER: _seconds(starts[1:]),
        FIRST_LABELS: _labels(starts[:1]),
        LATER_LABELS: _labels(starts[1:]),
    }
    return table


def _row(
    node: CrioNode, requests: Requests, kind: str, volume: str, profile: Profile
) -> dict[str, Measurement]:
    def start(*, drop_caches: bool = False) -> Start:
        return _started(node, requests.named(kind, volume), volume, drop_caches=drop_caches)

    node.warm(volume)
    first = start()
    later = [start() for _ in range(profile.later_starts)]
    dropped = [start(drop_caches=True) for _ in range(profile.later_starts)]
    other = _started(node, requests.named(kind, volume, level=OTHER_LEVEL), volume)
    return {
        FIRST: _seconds([first]),
        LATER: _seconds(later),
        DROPPED: _seconds(dropped),
        OTHER: _seconds([other]),
        FIRST_LABELS: _labels([first]),
        LATER_LABELS: _labels([*later, *dropped]),
    }


def _started(
    node: CrioNode, request: Json, volume: str = "", *, drop_caches: bool = False
) -> Start:
    start = node.start(request, volume, drop_caches=drop_caches)
    if start.error:
        raise BenchError(f"a container did not start: {start.error}")
    return start


def _seconds(starts: Sequence[Start]) -> Measurement:
    return Measurement(tuple(start.create_seconds for start in starts), "s")


def _labels(starts: Sequence[Start]) -> Measurement:
    return Measurement(tuple(start.written for start in starts), COUNT)
