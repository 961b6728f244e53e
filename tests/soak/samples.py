"""What is sampled of a replica, and whether it grows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.helm_release import Replica
from tests.support.process import process_status

_KIB_PER_MIB = 1024
MAX_MEMORY_SLOPE_MIB = 1.0
"""The largest slope of the memory in ten minutes."""
MAX_GROWTH = 2
"""The largest growth of the lowest number of descriptors, of tasks and of threads. A connection or
a look-up more is no growth."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One replica at one moment, and the creations since the sample before."""

    minute: float
    memory_mib: float
    descriptors: int
    threads: int
    tasks: int
    created: int
    p50_ms: float
    p99_ms: float


def read_process(replica: Replica, token: str) -> tuple[float, int, int, int]:
    """Return resident memory in MiB, and the number of descriptors, threads and asyncio tasks."""
    metrics = replica.request("GET", "/metrics", token=token).text.splitlines()
    (tasks,) = (line.split()[1] for line in metrics if line.startswith("podsettle_tasks "))
    return (
        int(process_status(replica.pid, "VmRSS").removesuffix(" kB")) / _KIB_PER_MIB,
        len(list(Path(f"/proc/{replica.pid}/fd").iterdir())),
        int(process_status(replica.pid, "Threads")),
        int(float(tasks)),
    )


def growth(samples: Sequence[Sample]) -> list[str]:
    """Return what grows in the samples.

    What leaks raises the lowest number. A slow minute, in which an API server opens more
    connections, does not.
    """
    third = max(1, len(samples) // 3)
    found = []
    if (slope := memory_slope(samples)) > MAX_MEMORY_SLOPE_MIB:
        found.append(f"memory grows by {slope:.2f} MiB in ten minutes")
    for name in ("descriptors", "tasks", "threads"):
        values = [getattr(sample, name) for sample in samples]
        first, last = min(values[:third]), min(values[-third:])
        if last - first > MAX_GROWTH:
            found.append(f"{name} grow: at least {first} in the first third, {last} in the last")
    return found


def memory_slope(samples: Sequence[Sample]) -> float:
    """Return the slope of the memory, in MiB in ten minutes."""
    minutes = [sample.minute for sample in samples]
    memory = [sample.memory_mib for sample in samples]
    return 10 * statistics.linear_regression(minutes, memory).slope
