"""The measurements of `make umount`: which conditions, in which order, and their tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median

from bench.environment import describe_environment
from bench.format import COUNT
from bench.interleave import interleave
from bench.measurement import Measurement
from bench.node.disk_load import WRITE_MEBIBYTES, WRITERS
from bench.node.umount_node import Sample, UmountNode
from bench.node.umount_pods import WRITTEN_MEBIBYTES
from bench.node.umount_report import (
    CALLS,
    FAILURES,
    GAP,
    INJECTED,
    LOAD,
    RATIO,
    UMOUNT,
    VOLATILE,
)  # fmt: skip
from bench.node.umount_trace import find_strace
from bench.report_table import ReportTable
from tests.support.node.containerd import Containerd
from tests.support.node.node import RealNode

_MAJORS = (2, 1)
_IDLE, _BUSY = "idle disk", "fsync load"
_FACTS = ("commit", "date", "processor", "memory", "system", "load average before", "Kubernetes")


@dataclass(frozen=True, slots=True)
class Profile:
    """The amount of work for the figures."""

    rounds: int
    # Init containers of the pod that each round starts. Each of them is one measurement.
    inits: int
    # Injected delays of each umount2 call.
    delays_seconds: tuple[float, ...]


# The report injects 60 s. The shim calls umount2 twice, so of the shorter delays one stays below
# containerd's limit of 10 s.
FULL = Profile(rounds=3, inits=4, delays_seconds=(2, 8, 60))
SHORT = Profile(rounds=1, inits=1, delays_seconds=(1,))


def measure(profile: Profile, directory: Path) -> tuple[dict[str, ReportTable], dict[str, str]]:
    """Measure on a node of each major release of containerd. Return tables and environment."""
    find_strace()
    # The load average must be read before the nodes load the machine.
    facts = describe_environment()
    load = ReportTable(LOAD, "Umount of a finished init container, and the gap after it")
    injected = ReportTable(INJECTED, "The same with each umount2 call delayed by strace")
    versions = []
    for major in _MAJORS:
        runtime = Containerd(major)
        versions.append(runtime.version)
        with RealNode.start(runtime) as node:
            umounts = UmountNode(node, runtime, directory)
            name = f"containerd {runtime.version}"
            _add_load(load, name, umounts, profile)
            _add_injected(injected, name, umounts, profile)
    load.notes += [
        f"{profile.rounds * profile.inits} init containers in each row: the median, and the range. "
        "The ratio is that of the medians of each round.",
        f"Each init container writes {WRITTEN_MEBIBYTES} MiB to its root filesystem.",
        f"fsync load: {WRITERS} programs write {WRITE_MEBIBYTES} MiB each and call fsync, again "
        "and again, on the same filesystem.",
        f"*{UMOUNT}* is the time in umount2 calls for the root filesystem. *{GAP}* is the time "
        "between the last output of the init container and the first output of the next container.",
    ]
    injected.notes += [
        "One init container in each row. The shim calls umount2 twice for a root filesystem: the "
        "second call finds no mount.",
        "The gap of 8 s depends on when containerd's retry begins, so a difference between the two "
        "rows of a delay is chance.",
        f"*{FAILURES}* are lines with `failed to stop container` and `context deadline exceeded` "
        "in containerd's log.",
    ]
    environment = {key: facts[key] for key in _FACTS}
    environment["containerd"] = " and ".join(versions)
    return {LOAD: load, INJECTED: injected}, environment


def _add_load(table: ReportTable, name: str, node: UmountNode, profile: Profile) -> None:
    def run(volatile: bool, loaded: bool) -> list[Sample]:
        node.use_volatile(volatile)
        return (node.measure_load if loaded else node.measure)(profile.inits)

    conditions = {
        _row(name, condition, volatile): partial(run, volatile, loaded)
        for volatile in (False, True)
        for condition, loaded in ((_IDLE, False), (_BUSY, True))
    }
    results = interleave(conditions, profile.rounds)
    # By condition, so that the two rows to compare stand together.
    for condition in (_IDLE, _BUSY):
        plain, volatile = (_row(name, condition, volatile) for volatile in (False, True))
        for row in (plain, volatile):
            table.rows[row] = _figures(list(chain.from_iterable(results[row])), "ms")
        ratio = _round_medians(results[plain]).ratio_to(_round_medians(results[volatile]))
        table.rows[plain][RATIO] = ratio


def _add_injected(table: ReportTable, name: str, node: UmountNode, profile: Profile) -> None:
    samples = node.measure_delays(profile.delays_seconds)
    for delay, volatile in sorted(samples):
        sample = samples[delay, volatile]
        table.rows[_row(name, f"{delay:g} s", volatile)] = {
            **_figures([sample], "s"),
            CALLS: Measurement((sample.calls,), COUNT),
            FAILURES: Measurement((sample.failures,), COUNT),
        }


def _figures(samples: Sequence[Sample], umount_unit: str) -> dict[str, Measurement]:
    scale = {"ms": 1000.0, "s": 1.0}[umount_unit]
    umounts = tuple(sample.umount_seconds * scale for sample in samples)
    gaps = tuple(sample.gap_seconds for sample in samples)
    return {UMOUNT: Measurement(umounts, umount_unit), GAP: Measurement(gaps, "s")}


def _round_medians(rounds: Iterable[Sequence[Sample]]) -> Measurement:
    return Measurement(tuple(median(each.umount_seconds for each in one) for one in rounds))


def _row(name: str, condition: str, volatile: bool) -> str:
    return f"{name}, {condition}" + (f", {VOLATILE}" if volatile else "")
