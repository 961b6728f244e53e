"""The results of a run, and the file that keeps them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from race.bounds import lower_bound, upper_bound
from race.calls import HandlerCalls
from race.cells import Condition, Delivery, Kind, Provocation
from race.exposure import ExposureSummary
from race.observations import Observations
from race.pods import LOST_EXIT_CODE

# Measured by hand: 1,500 containers with runc and 1,500 with crun (README.md).
NATURAL_LOST, NATURAL_ENDED = 0, 3_000


@dataclass(frozen=True, slots=True)
class Count:
    """How many containers ended under a condition, and how many of them failed.

    All commands exit with 0, so each other code is a failure.
    """

    ended: int
    lost: int
    """Containers with exit code 255."""
    other: int = 0
    """Containers with an exit code that is neither 0 nor 255."""
    added_failed: int = 0
    """Failed containers of podsettle in the same pods. Those that exit with 0 are not counted."""
    abnormal: int = 0
    """Pods that did not end, and pods that failed without a failed container."""
    pods: int = 0
    """Pods that the containers are from. 0 in results that do not have it."""

    @property
    def failed(self) -> int:
        """The containers that failed, those of podsettle included."""
        return self.lost + self.other + self.added_failed

    @property
    def total(self) -> int:
        """The containers that ended, and those of podsettle that failed."""
        return self.ended + self.added_failed

    @property
    def rate(self) -> float:
        """The share of containers that failed."""
        return self.failed / self.total if self.total else 0.0

    @property
    def low(self) -> float:
        """The lower confidence bound of the rate."""
        return lower_bound(self.failed, self.total) if self.total else 0.0

    @property
    def high(self) -> float:
        """The upper confidence bound of the rate."""
        return upper_bound(self.failed, self.total) if self.total else 1.0


def sum_of(counts: Iterable[Count]) -> Count | None:
    """Return the sum of some counts, or None if there is none."""
    found = list(counts)
    if not found:
        return None
    return Count(
        ended=sum(each.ended for each in found),
        lost=sum(each.lost for each in found),
        other=sum(each.other for each in found),
        added_failed=sum(each.added_failed for each in found),
        abnormal=sum(each.abnormal for each in found),
        pods=sum(each.pods for each in found),
    )


@dataclass(frozen=True, slots=True)
class RuntimeResult:
    """The results on one container runtime."""

    runtime: str
    """As the node reports it, such as `cri-o://1.33.12`."""
    commit: str
    """The commit of the runtime's source. Empty if it is built from a released module."""
    counts: Mapping[Condition, Count]
    seconds: int
    complete: bool
    """Whether enough containers ended under each condition before the time was over."""
    handlers: Mapping[Provocation, HandlerCalls]
    """The calls of each provoked handler."""
    exposure: ExposureSummary | None

    def total(self, provocation: Provocation, delivery: Delivery, kind: Kind) -> Count | None:
        """Return the count for one condition with the default lifetime, or None."""
        found = [
            count
            for condition, count in self.counts.items()
            if (condition.provocation, condition.delivery, condition.kind)
            == (provocation, delivery, kind)
            and (condition.is_control or condition.is_default)
        ]
        return found[0] if found else None


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a run on some runtimes."""

    environment: Mapping[str, str]
    runtimes: tuple[RuntimeResult, ...]
    without_podsettle: bool = False
    """Whether an option left out the wrapped containers."""


def counts_of(seen: Observations) -> dict[Condition, Count]:
    """Return the count for each condition, in the order in which tables show them."""
    codes: dict[Condition, Counter[int]] = {}
    added_failed: Counter[Condition] = Counter()
    for each, number in seen.exits.items():
        if not each.is_added:
            codes.setdefault(each.condition, Counter())[each.code] += number
        elif each.code != 0:
            added_failed[each.condition] += number
    abnormal = seen.stuck + seen.incomplete
    counts = {}
    for condition in sorted({*codes, *added_failed, *abnormal}, key=_order):
        found = codes.get(condition, Counter())
        counts[condition] = Count(
            ended=found.total(),
            lost=found[LOST_EXIT_CODE],
            other=found.total() - found[LOST_EXIT_CODE] - found[0],
            added_failed=added_failed[condition],
            abnormal=abnormal[condition],
            pods=seen.pods[condition],
        )
    return counts


def _order(condition: Condition) -> tuple[int, ...]:
    return (
        -list(Provocation).index(condition.provocation),
        list(Kind).index(condition.kind),
        list(Delivery).index(condition.delivery),
        condition.lifetime_ms,
    )


def as_json(results: Results) -> str:
    """Return the content of the results file."""
    data: dict[str, Any] = {
        "environment": dict(results.environment),
        "without podsettle": results.without_podsettle,
        "natural rate by hand": {"lost": NATURAL_LOST, "ended": NATURAL_ENDED},
        "runtimes": [
            {
                "runtime": each.runtime,
                "commit": each.commit,
                "seconds": each.seconds,
                "complete": each.complete,
                "handlers": {name: calls.as_json() for name, calls in each.handlers.items()},
                "exposure": each.exposure.as_json() if each.exposure else None,
                "counts": [
                    {
                        "provocation": condition.provocation,
                        "containers": condition.kind,
                        "delivery": condition.delivery,
                        "lifetime ms": condition.lifetime_ms,
                        "pods": count.pods,
                        "ended": count.ended,
                        "lost": count.lost,
                        "other": count.other,
                        "failed containers of podsettle": count.added_failed,
                        "abnormal pods": count.abnormal,
                        "rate": count.rate,
                        "one-sided 95 % bounds": [count.low, count.high],
                    }
                    for condition, count in each.counts.items()
                ],
            }
            for each in results.runtimes
        ],
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> Results:
    """Return the results of a results file."""
    data = json.loads(text)
    return Results(
        data["environment"],
        tuple(
            RuntimeResult(
                runtime=each["runtime"],
                commit=each["commit"],
                counts={_condition(row): _count(row) for row in each["counts"]},
                seconds=each["seconds"],
                complete=each["complete"],
                handlers={
                    Provocation(name): HandlerCalls.from_json(calls)
                    for name, calls in each["handlers"].items()
                },
                exposure=ExposureSummary.from_json(each["exposure"]) if each["exposure"] else None,
            )
            for each in data["runtimes"]
        ),
        data["without podsettle"],
    )


def _condition(row: Mapping[str, Any]) -> Condition:
    return Condition(
        Provocation(row["provocation"]),
        Delivery(row["delivery"]),
        row["lifetime ms"],
        Kind(row["containers"]),
    )


def _count(row: Mapping[str, Any]) -> Count:
    return Count(
        ended=row["ended"],
        lost=row["lost"],
        other=row["other"],
        added_failed=row["failed containers of podsettle"],
        abnormal=row["abnormal pods"],
        pods=row["pods"],
    )
