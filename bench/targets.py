"""The targets of the benchmark, and whether a run met them."""

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
# The ratios to other servers depend on the processor. How a model's name begins.
_EPYC, _XEON = "AMD EPYC", "Intel Xeon"


@dataclass(frozen=True, slots=True)
class Target:
    """A lower or an upper bound for a figure."""

    description: str
    bound: float
    unit: str
    at_least: bool
    figure: Callable[[Parts], Measurement]
    aim: float | None = None
    """A better value than the bound, which the project works towards."""
    processors: tuple[str, ...] = ()
    """The processors that the bound is for, if the figure depends on the processor."""

    @property
    def text(self) -> str:
        """The description, with the processors."""
        if not self.processors:
            return self.description
        return f"{self.description} ({' and '.join(self.processors)})"

    def is_for(self, processor: str) -> bool:
        """Return whether the bound is for a processor with this model name."""
        # Intel's model names are like `Intel(R) Xeon(R) Gold 6430`.
        name = processor.replace("(R)", "")
        return not self.processors or name.startswith(self.processors)

    def is_met(self, measurement: Measurement) -> bool:
        """Return whether the median is within the bound."""
        if self.at_least:
            return measurement.median >= self.bound
        return measurement.median <= self.bound


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target with its measured figure, which is None if the figure was not measured."""

    target: Target
    measurement: Measurement | None
    processor: str

    @property
    def result(self) -> str:
        """The text for tables: `met`, `MISSED`, `not measured` or `another processor`."""
        if self.measurement is None:
            return "not measured"
        if not self.target.is_for(self.processor):
            return "another processor"
        return "met" if self.target.is_met(self.measurement) else "MISSED"


def evaluate_targets(parts: Parts, processor: str) -> list[Verdict]:
    """Return a verdict for every target, from figures of this processor."""
    verdicts = []
    for target in TARGETS:
        try:
            measurement = target.figure(parts)
        except KeyError:
            measurement = None
        verdicts.append(Verdict(target, measurement, processor))
    return verdicts


def _throughput(name: str, connections: int, column: str, parts: Parts) -> Measurement:
    return parts[throughput.NAME].figure(throughput.row(name, connections), column)


def _ratio_to(other: str, ours: str = "podsettle") -> Callable[[Parts], Measurement]:
    def figure(parts: Parts) -> Measurement:
        measured = _throughput(ours, CONNECTIONS, _PER_CORE, parts)
        return measured.ratio_to(_throughput(other, CONNECTIONS, _PER_CORE, parts))

    return figure


def _ratio_to_native_policy(parts: Parts) -> Measurement:
    part = parts[end_to_end.NAME]
    ours = part.figure(end_to_end.PODSETTLE, end_to_end.INCREMENT)
    return ours.ratio_to(part.figure(end_to_end.NATIVE, end_to_end.INCREMENT))


def _ratio_of_miss(parts: Parts) -> Measurement:
    part = parts[core.NAME]
    return part.figure(core.MISS, "time").ratio_to(part.figure(core.UNCACHED, "time"))


def _ratio_with_many_policies(parts: Parts) -> Measurement:
    part = parts[growth.NAME]
    many, one = growth.policies_row(1_000), growth.policies_row(1)
    return part.figure(many, _RATE).ratio_to(part.figure(one, _RATE))


def _ratio_to_echo_for_large_pods(parts: Parts) -> Measurement:
    part = parts[growth.NAME]
    ours, echo = growth.size_row(250), growth.size_row(250, "echo")
    return part.figure(ours, _RATE).ratio_to(part.figure(echo, _RATE))


def _memory_under_load(parts: Parts) -> Measurement:
    return parts[footprint.NAME].figure(footprint.memory_row(FULL.large), footprint.LOADED)


def _seconds_to_ready(row: str) -> Callable[[Parts], Measurement]:
    return lambda parts: parts[footprint.NAME].figure(row, "time")


def _ratio_of_p99(parts: Parts) -> Measurement:
    part = parts[throughput.NAME]
    ours, echo = throughput.constant_rate_row("podsettle"), throughput.constant_rate_row("echo")
    return part.figure(ours, "p99").ratio_to(part.figure(echo, "p99"))


def _worst_during_previews(column: str) -> Callable[[Parts], Measurement]:
    return lambda parts: previews.worst(parts[previews.NAME], column)


TARGETS = (
    Target(
        "reviews of one template per CPU-second, ratio to agnhost",
        4,
        "×",
        True,
        _ratio_to("agnhost"),
        aim=5.5,
        processors=(_EPYC, _XEON),
    ),
    Target(
        "reviews of one template per CPU-second, ratio to the echo",
        0.55,
        "×",
        True,
        _ratio_to("echo"),
        aim=0.7,
        processors=(_EPYC,),
    ),
    Target(
        "reviews of pods of which no two are alike per CPU-second, ratio to agnhost",
        2,
        "×",
        True,
        _ratio_to("agnhost", throughput.UNLIKE),
        aim=2.5,
        processors=(_EPYC,),
    ),
    Target(
        "CPU time of a cache miss, ratio to the same decision without a cache",
        1.15,
        "×",
        False,
        _ratio_of_miss,
        aim=1.05,
    ),
    Target(
        "increment of a pod creation, p50, ratio to the native policy",
        0.9,
        "×",
        False,
        _ratio_to_native_policy,
    ),
    Target(
        "reviews/s with 1,000 policies, ratio to 1 policy",
        0.9,
        "×",
        True,
        _ratio_with_many_policies,
    ),
    Target(
        "reviews/s of 250 KB pods, ratio to the echo", 0.5, "×", True, _ratio_to_echo_for_large_pods
    ),
    Target(
        "memory of all processes under load, API server, 10,000 namespaces, 1,000 policies",
        110,
        "MiB",
        False,
        _memory_under_load,
    ),
    Target(footprint.READY, 0.9, "s", False, _seconds_to_ready(footprint.READY)),
    Target(
        footprint.READY_ON_API_SERVER,
        1.2,
        "s",
        False,
        _seconds_to_ready(footprint.READY_ON_API_SERVER),
    ),
    Target("p99 at half of the peak rate, ratio to the echo", 2, "×", False, _ratio_of_p99),
    Target(
        "longest event loop stall during previews",
        20,
        "ms",
        False,
        _worst_during_previews(previews.STALL),
    ),
    Target(
        "p99 during previews, above twice that without previews",
        5,
        "ms",
        False,
        _worst_during_previews(previews.EXCESS),
    ),
)
