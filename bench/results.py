"""The results of a run: figures, their comparisons and targets, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from operator import truediv
from statistics import median
from typing import Any, TypeAlias

from rich.table import Table

from bench.intervals import median_interval

# Figure to contender to the value of each round.
Values: TypeAlias = dict[str, dict[str, list[float]]]

PODSETTLE, OTHER, ECHO, AGNHOST = "podsettle", "other commit", "echo", "agnhost"
NATIVE = "native policy"
ONE_POLICY, MANY_POLICIES, MANY_NAMESPACES = "1 policy", "1,000 policies", "10,000 namespaces"

TEMPLATE = "reviews of one template"
UNLIKE = "reviews of pods of which no two are alike"
LARGE = "reviews of 250 KB pods"
INIT_CONTAINERS = "reviews of pods with 40 init containers"
GROWTH = "reviews as the cluster grows"
CORE_SHARE = "share of its core that the server got"
P99 = "p99 at half of the peak rate"
DELAY = "p99 of the load generator's own delay"
READY, IDLE, LOADED = "exec to ready", "memory, idle", "memory under load"
IN_LARGE_CLUSTER = ", API server, 10,000 namespaces, 1,000 policies"
P99_BESIDE = "p99 beside previews of "
LONGEST_BESIDE = "longest review beside previews of "
PREVIEWS = "previews of "
CREATION, INCREMENT = "creation of a pod, p50", "increment of a creation, p50"
ABOVE_ECHO = "increment of a creation, p50, above that of the echo"

_PER_CPU_SECOND = "/CPU-s"
_UNITS = {
    **dict.fromkeys((TEMPLATE, UNLIKE, LARGE, INIT_CONTAINERS, GROWTH), _PER_CPU_SECOND),
    CORE_SHARE: "",
    READY: "s",
    IDLE: "MiB",
    LOADED: "MiB",
    PREVIEWS: "/s",
}
# Figures of which a ratio says nothing: they show whether others are valid, or may be negative.
_NO_RATIO = (CORE_SHARE, DELAY, ABOVE_ECHO, PREVIEWS)
# Figures without a unit here are milliseconds. More is better for these units.
_MORE_IS_BETTER = (_PER_CPU_SECOND, "/s", "")
# A row is worse if the whole interval of its ratio to the other commit lies beyond these bounds.
_MAX_WORSE, _MAX_MORE_MEMORY = 1.03, 1.014


def unit_of(figure: str) -> str:
    """Return the unit of a figure."""
    for name, unit in _UNITS.items():
        if figure.startswith(name):
            return unit
    return "ms"


@dataclass(frozen=True, slots=True)
class Target:
    """A bound of a figure or, with `beside`, of its ratio to the figure of another server."""

    figure: str
    of: str
    bound: float
    beside: str = ""

    @property
    def at_least(self) -> bool:
        """Whether the bound is a lower one."""
        return unit_of(self.figure) in _MORE_IS_BETTER


TARGETS = (
    # Ratios to agnhost depend on the processor. These hold on AMD EPYC and Intel Xeon.
    Target(TEMPLATE, PODSETTLE, 4, AGNHOST),
    Target(TEMPLATE, PODSETTLE, 0.4, ECHO),
    Target(UNLIKE, PODSETTLE, 2.5, AGNHOST),
    Target(LARGE, PODSETTLE, 0.5, ECHO),
    Target(P99, PODSETTLE, 2, ECHO),
    Target(GROWTH, MANY_POLICIES, 0.9, ONE_POLICY),
    Target(GROWTH, MANY_NAMESPACES, 0.9, ONE_POLICY),
    Target(READY, PODSETTLE, 0.9),
    Target(f"{LOADED}{IN_LARGE_CLUSTER}", PODSETTLE, 110),
    Target(f"{LONGEST_BESIDE}ordinary pods", PODSETTLE, 20),
    Target(f"{LONGEST_BESIDE}hostile texts", PODSETTLE, 20),
    Target(INCREMENT, PODSETTLE, 0.9, NATIVE),
    Target(ABOVE_ECHO, PODSETTLE, 0.15),
    # If these are missed, other processes disturbed the measurement.
    Target(CORE_SHARE, PODSETTLE, 0.95),
    Target(DELAY, PODSETTLE, 0.5),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure of one contender, alone or as the ratio to another one in each round."""

    figure: str
    of: str
    beside: str
    values: tuple[float, ...]
    target: Target | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the median."""
        return median_interval(self.values)

    @property
    def is_worse(self) -> bool:
        """Whether this commit is certainly worse than the other one."""
        if self.beside != OTHER:
            return False
        low, high = self.interval
        unit = unit_of(self.figure)
        if unit in _MORE_IS_BETTER:
            return high < 1 / _MAX_WORSE
        return low > (_MAX_MORE_MEMORY if unit == "MiB" else _MAX_WORSE)

    @property
    def result(self) -> str:
        """What the table says about the comparison."""
        if self.beside == OTHER:
            return "WORSE" if self.is_worse else "held"
        if self.target is None:
            return ""
        at_least, bound = self.target.at_least, self.target.bound
        middle = median(self.values)
        return "met" if (middle >= bound if at_least else middle <= bound) else "MISSED"


def compare(values: Values) -> Iterator[Comparison]:
    """Yield each figure of each contender, then its ratios to other contenders."""
    targets = {(target.figure, target.of, target.beside): target for target in TARGETS}
    for figure, contenders in values.items():
        for of, rounds in contenders.items():
            yield Comparison(figure, of, "", tuple(rounds), targets.get((figure, of, "")))
        for of, rounds in contenders.items():
            for beside, others in contenders.items():
                target = targets.get((figure, of, beside))
                is_compared = (of, beside) == (PODSETTLE, OTHER) and not figure.startswith(
                    _NO_RATIO
                )
                if target or is_compared:
                    ratios = tuple(map(truediv, rounds, others))
                    yield Comparison(figure, of, beside, ratios, target)


def table(comparisons: list[Comparison]) -> Table:
    """Return the table of a run for a terminal."""
    result = Table(box=None, header_style="bold")
    for head in ("figure", "of", "median", "95 % interval", "target", "result"):
        result.add_column(head, overflow="fold")
    before = ""
    for each in comparisons:
        unit = " ×" if each.beside else f" {unit_of(each.figure)}".rstrip()
        low, high = each.interval
        target = ""
        if each.target:
            target = f"{'≥' if each.target.at_least else '≤'} {each.target.bound:g}{unit}"
        result.add_row(
            each.figure if each.figure != before else "",
            f"{each.of} / {each.beside}" if each.beside else each.of,
            f"{format_number(median(each.values))}{unit}",
            f"{format_number(low)}–{format_number(high)}" if len(each.values) > 5 else "",
            target,
            each.result,
        )
        before = each.figure
    return result


def format_number(value: float) -> str:
    """Return the value with at least three significant digits."""
    return f"{value:,.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


def as_json(
    values: Values, comparisons: list[Comparison], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the content of the results file: the environment, all rounds, and the comparisons."""
    return {
        "environment": dict(environment),
        "figures": {
            figure: {"unit": unit_of(figure), "rounds": contenders}
            for figure, contenders in values.items()
        },
        "comparisons": [
            {
                **asdict(each),
                "median": median(each.values),
                "interval": each.interval if len(each.values) > 5 else None,
                "result": each.result,
            }
            for each in comparisons
        ],
    }
