"""What a full run has to show, and whether it did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from race.cells import Delivery, Kind, Provocation
from race.results import Count, Results, RuntimeResult, sum_of

# 0 of 1,000 containers have an upper bound of 0.2991 %.
MAX_RATE = 0.003
MIN_CONTAINERS = 1_000
# Fewer containers say little, whatever they show.
MIN_CONTROLS = 100
MIN_CONTROL_RATE = 0.5
# Regular containers are fewer, because five of them take a pod of their own.
MAX_REGULAR_RATE = 0.05
_LATE = Provocation.LATE_EXIT


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target with what was measured."""

    target: str
    measured: str
    result: str
    """`met`, `missed`, `not measured`, or `left out` by an option."""

    @property
    def fails(self) -> bool:
        """Whether the run ends with an error."""
        return self.result in ("missed", "not measured")


def evaluate_targets(results: Results) -> Iterator[Verdict]:
    """Yield the verdict on each target. The first runtime is the one with the defect."""
    affected, *others = results.runtimes
    left_out = results.without_podsettle
    for kind, limit, floor in (
        (Kind.INIT, MAX_RATE, MIN_CONTAINERS),
        (Kind.REGULAR, MAX_REGULAR_RATE, MIN_CONTROLS),
    ):
        for delivery in Delivery:
            if delivery is Delivery.NONE:
                continue
            count = affected.total(_LATE, delivery, kind)
            yield _verdict(
                f"{delivery} ({kind}): rate below {limit:.1%}, of at least {floor:,}",
                count,
                count is not None and count.high < limit and count.ended >= floor,
                left_out=left_out,
            )
    count = _sum_of_other_failures(results)
    yield _verdict(
        "all wrapped containers: no exit code but 0 and 255, no failed container of podsettle",
        count,
        count is not None and count.other + count.added_failed == 0,
        left_out=left_out,
    )
    for kind in Kind:
        count = affected.total(_LATE, Delivery.NONE, kind)
        yield _verdict(
            f"controls ({kind}): 255 in more than {MIN_CONTROL_RATE:.0%}, "
            f"of at least {MIN_CONTROLS}",
            count,
            count is not None
            and count.lost > MIN_CONTROL_RATE * count.ended
            and count.ended >= MIN_CONTROLS,
        )
    for other in others:
        count = _sum_not_wrapped(other)
        yield _verdict(
            f"{other.runtime}, not wrapped: 0, of at least {MIN_CONTROLS}",
            count,
            count is not None and count.failed == 0 and count.ended >= MIN_CONTROLS,
        )


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return the exit code of a run: 1 if a target is missed or was not measured."""
    return int(any(verdict.fails for verdict in verdicts))


def _verdict(target: str, count: Count | None, met: bool, *, left_out: bool = False) -> Verdict:
    """Return the verdict. Pods that did not end as they should may hide a failed container."""
    if count is None:
        return Verdict(target, "", "left out" if left_out else "not measured")
    measured = f"{count.failed} of {count.total:,}"
    if count.abnormal:
        return Verdict(target, f"{measured}; {count.abnormal} abnormal pods", "missed")
    return Verdict(target, measured, "met" if met else "missed")


def _sum_of_other_failures(results: Results) -> Count | None:
    """Return the sum over all wrapped containers, without lost exit codes.

    Containers with short lifetimes are expected to lose their exit codes.
    """
    return sum_of(
        replace(count, lost=0)
        for each in results.runtimes
        for condition, count in each.counts.items()
        if condition.is_wrapped
    )


def _sum_not_wrapped(result: RuntimeResult) -> Count | None:
    """Return the sum over all provoked containers of a runtime without the defect."""
    return sum_of(
        count
        for condition, count in result.counts.items()
        if condition.provocation is not Provocation.NATURAL
    )
