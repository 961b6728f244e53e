"""The measurements of `make umount`: which releases and sizes, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.environment import describe_environment
from bench.format import COUNT
from bench.measurement import Measurement
from bench.node.umount_clock import POLL_SECONDS
from bench.node.umount_cluster import SETTLED, UNSETTLED, Sample, umount_cluster
from bench.node.umount_report import (
    FAILURES,
    GAP,
    LATE,
    LATE_SECONDS,
    SHOWN_RUNNING,
    UMOUNT,
    VOLATILE,
)  # fmt: skip
from bench.report_table import ReportTable
from tests.support.node.containerd import Containerd
from tests.support.node.slow_disk import WRITE_MEBIBYTES_PER_SECOND

_FACTS = ("commit", "date", "processor", "memory", "system", "load average before", "Kubernetes")


@dataclass(frozen=True, slots=True)
class Profile:
    """The amount of work for the figures."""

    lines: tuple[str, ...]
    # Of each size, one unsettled and one settled pod in each round.
    rounds: int
    # What an init container writes to its root filesystem.
    mebibytes: tuple[int, ...]


# The umount of 16 MiB stays below containerd's limit of 10 s. That of 256 MiB makes a gap of more
# than a minute, which `podsettle scan` finds.
FULL = Profile(lines=("2.4", "1.7"), rounds=3, mebibytes=(16, 64, 256))
SHORT = Profile(lines=("2.4",), rounds=1, mebibytes=(16, 256))


def measure(profile: Profile) -> tuple[ReportTable, dict[str, str]]:
    """Measure in a cluster of each release line of containerd. Return table and environment."""
    # The load average must be read before the nodes load the machine.
    facts = describe_environment()
    table = ReportTable("slow-disk", "Init containers on a slow disk")
    versions = []
    for line in profile.lines:
        version = Containerd(line).version
        versions.append(version)
        with umount_cluster(line) as cluster:
            for size in profile.mebibytes:
                samples = cluster.measure(size, profile.rounds)
                row = f"containerd {version}, {size} MiB"
                table.rows[row] = _figures(samples[UNSETTLED])
                table.rows[f"{row}, {VOLATILE}"] = _figures(samples[SETTLED])
    table.notes += [
        f"Pods in each row: {profile.rounds}. The figures are the median and the range. The rows "
        f"with *{VOLATILE}* are the settled pods. All pods were created alike, one of each kind at "
        "a time.",
        "The size is what the init container writes to its root filesystem. The disk of each node "
        f"writes {WRITE_MEBIBYTES_PER_SECOND} MiB/s.",
        f"*{UMOUNT}* is the time in umount2 calls of the shim, which is read every "
        f"{POLL_SECONDS * 1000:.0f} ms. Shorter calls show as 0.",
        f"*{GAP}* is the time between the last output of the init container and the first output "
        f"of the next container. *{SHOWN_RUNNING}* is the time in which the pod's status still "
        "showed the ended init container as running.",
        f"*{FAILURES}* are lines of containerd's log with `failed to stop container` or `failed to "
        "load task for container`, and `context deadline exceeded`. "
        f"*{LATE}* had a gap of more than {LATE_SECONDS} s.",
        "`podsettle scan` found exactly the pods with a gap of a minute or more.",
    ]
    environment = {key: facts[key] for key in _FACTS}
    environment["containerd"] = " and ".join(versions)
    return table, environment


def _figures(samples: Sequence[Sample]) -> dict[str, Measurement]:
    late = sum(each.gap_seconds > LATE_SECONDS for each in samples)
    return {
        UMOUNT: Measurement(tuple(each.umount_seconds for each in samples), "s"),
        GAP: Measurement(tuple(each.gap_seconds for each in samples), "s"),
        SHOWN_RUNNING: Measurement(tuple(each.shown_running_seconds for each in samples), "s"),
        FAILURES: Measurement(tuple(each.failures for each in samples), COUNT),
        LATE: Measurement((late,), COUNT),
    }
