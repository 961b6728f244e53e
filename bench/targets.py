"""What has to hold, and whether it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench import core, end_to_end, footprint, growth, previews, throughput
from bench.measurement import Measurement
from bench.profiles import FULL
from bench.report_table import ReportTable
from bench.run import CONNECTIONS

Parts = Mapping[str, ReportTable]
_PER_CORE = "reviews per CPU-second"
_RATE = "reviews/s"


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a figure."""

    description: str
    bound: float
    unit: str
    at_least: bool
    figure: Callable[[Parts], Measurement]

    def is_met(self, measure: Measurement) -> bool:
        """Whether the median keeps to the bound."""
        if self.at_least:
            return measure.median >= self.bound
        return measure.median <= self.bound


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target, and what came of it; no figure where its part was not run in full."""

    target: Target
    measure: Measurement | None

    @property
    def result(self) -> str:
        """For tables."""
        if self.measure is None:
            return "not measured"
        return "met" if self.target.is_met(self.measure) else "MISSED"


def evaluate_targets(parts: Parts) -> list[Verdict]:
    """Every target, with what was measured of it."""
    found = []
    for target in TARGETS:
        try:
            measure = target.figure(parts)
        except KeyError:
            measure = None
        found.append(Verdict(target, measure))
    return found


def _throughput(name: str, connections: int, column: str, parts: Parts) -> Measurement:
    return parts[throughput.NAME].figure(throughput.row(name, connections), column)


def _against(other: str) -> Callable[[Parts], Measurement]:
    def figure(parts: Parts) -> Measurement:
        ours = _throughput("podsettle", CONNECTIONS, _PER_CORE, parts)
        return ours.ratio_to(_throughput(other, CONNECTIONS, _PER_CORE, parts))

    return figure


def _against_native(parts: Parts) -> Measurement:
    part = parts[end_to_end.NAME]
    ours = part.figure(end_to_end.PODSETTLE, end_to_end.INCREMENT)
    return ours.ratio_to(part.figure(end_to_end.NATIVE, end_to_end.INCREMENT))


def _against_parser(parts: Parts) -> Measurement:
    part = parts[core.NAME]
    return part.figure(core.WHOLE, "time").ratio_to(part.figure(core.YARDSTICK, "time"))


def _many_policies(parts: Parts) -> Measurement:
    part = parts[growth.NAME]
    most, one = growth.policies_row(1_000), growth.policies_row(1)
    return part.figure(most, _RATE).ratio_to(part.figure(one, _RATE))


def _large_pod(parts: Parts) -> Measurement:
    part = parts[growth.NAME]
    ours, echo = growth.size_row(250), growth.size_row(250, "echo")
    return part.figure(ours, _RATE).ratio_to(part.figure(echo, _RATE))


def _memory(parts: Parts) -> Measurement:
    return parts[footprint.NAME].figure(footprint.memory_row(FULL.large), "under load")


def _ready(parts: Parts) -> Measurement:
    return parts[footprint.NAME].figure(footprint.READY, "time")


def _tail(parts: Parts) -> Measurement:
    part = parts[throughput.NAME]
    ours, echo = throughput.steady("podsettle"), throughput.steady("echo")
    return part.figure(ours, "p99").ratio_to(part.figure(echo, "p99"))


def _beside_previews(column: str) -> Callable[[Parts], Measurement]:
    return lambda parts: previews.worst(parts[previews.NAME], column)


TARGETS = (
    Target(
        "/mutate, pods of one template, reviews per CPU-second, against agnhost",
        3,
        "×",
        True,
        _against("agnhost"),
    ),
    Target("the same, against the bare ASGI echo", 0.55, "×", True, _against("echo")),
    Target(
        "added to a pod creation, p50, against the native policy", 1, "×", False, _against_native
    ),
    Target(
        "the decision on a pod of a known template, against one orjson.loads of the review",
        1,
        "×",
        False,
        _against_parser,
    ),
    Target("1,000 policies against one, reviews/s", 0.9, "×", True, _many_policies),
    Target("a 250 KB pod, reviews/s, against the echo", 0.5, "×", True, _large_pod),
    Target("memory under load, 10,000 namespaces, 1,000 policies", 90, "MiB", False, _memory),
    Target("exec to ready, manifests", 0.7, "s", False, _ready),
    Target("p99 at half of peak load, against the echo's", 2, "×", False, _tail),
    Target(
        "longest stall of the loop while previews are made",
        20,
        "ms",
        False,
        _beside_previews(previews.STALL),
    ),
    Target(
        "p99 beyond twice that without previews, while they are made",
        5,
        "ms",
        False,
        _beside_previews(previews.BEYOND),
    ),
)
