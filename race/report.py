"""The results as text for a terminal, and as tables."""

from __future__ import annotations

from collections.abc import Iterator

from bench.text_table import Cells, aligned_lines
from race.cells import Condition, Delivery, Kind, Provocation
from race.exposure import ExposureSummary
from race.results import NATURAL_ENDED, NATURAL_LOST, Count, Results, RuntimeResult, sum_of
from race.targets import evaluate_targets

NATURAL = (
    f"Without a provocation, {NATURAL_LOST} of {NATURAL_ENDED:,} containers lost their exit code "
    "(measured by hand on 21 November 2026: CRI-O 1.33.12, conmon 2.1.13, half of them with "
    "runc 1.1.5 and half with crun 1.21)."
)


def as_text(results: Results, *, with_targets: bool = True) -> str:
    """Return the tables for a terminal."""
    lines: list[str] = []
    for each in results.runtimes:
        lines += ["", f"{each.runtime} ({each.seconds} s)", *aligned_lines(full_table(each)), ""]
        lines += sentences(each)
    lines += ["", NATURAL, ""]
    if with_targets:
        lines += [*aligned_lines(target_table(results)), ""]
    return "\n".join(lines)


def full_table(result: RuntimeResult) -> Cells:
    """Return a row for each condition on a runtime."""
    table: Cells = [
        [
            *("provocation", "containers", "delivery", "lifetime", "pods"),
            *("exit code 255", "another code but 0", "rate of both, one-sided 95 % bounds"),
        ]
    ]
    for condition, count in result.counts.items():
        table.append(
            [
                condition.provocation,
                condition.kind,
                condition.delivery,
                _lifetime(condition),
                str(count.pods) if count.pods else "not counted",
                f"{count.lost} of {count.ended:,}",
                _other(count),
                f"{percent(count.rate)}; {percent(count.low)}, {percent(count.high)}",
            ]
        )
    return table


def _lifetime(condition: Condition) -> str:
    if condition.is_control:
        return "-"
    by_command = "" if condition.is_wrapped else " (of the command)"
    return f"{condition.lifetime_ms} ms{by_command}"


def _other(count: Count) -> str:
    added = f", and {count.added_failed} of podsettle's" if count.added_failed else ""
    abnormal = f", and {count.abnormal} abnormal pods" if count.abnormal else ""
    return f"{count.other}{added}{abnormal}"


def sentences(result: RuntimeResult) -> Iterator[str]:
    """Yield what is known of a run beside the counts."""
    if not result.complete:
        yield "The time was over before all cells were complete."
    if weak := _weak_rows(result):
        yield weak
    if result.exposure:
        yield exposure_sentence(result.exposure)
    for provocation, calls in result.handlers.items():
        yield (
            f"Handler of `{provocation}`: the runtime called `start` {calls.starts:,} times (each "
            f"took at least {calls.shortest_start_ms:.0f} ms) and `state` "
            f"{calls.state_queries:,} times."
        )


def _weak_rows(result: RuntimeResult) -> str:
    """Return a warning of rows that cannot show whether a wrapper helps."""
    weak = {}
    for provocation in Provocation:
        wrapped = result.total(provocation, Delivery.AUTO, Kind.INIT)
        control = result.total(provocation, Delivery.NONE, Kind.INIT)
        # With these rates, 0 wrapped containers are also likely if the wrapper does nothing.
        if control and (wrapped is None or wrapped.high > control.low):
            weak[provocation] = control
    if not weak or not any(condition.is_wrapped for condition in result.counts):
        return ""
    shown = ", ".join(
        f"`{provocation}`: {control.failed} of {control.total:,}"
        for provocation, control in weak.items()
    )
    return (
        "These provocations say nothing about podsettle, because too few of the unwrapped init "
        f"containers failed: {shown}."
    )


def target_table(results: Results) -> Cells:
    """Return a row for each target."""
    return [
        ["target", "measured", "result"],
        *([each.target, each.measured, each.result] for each in evaluate_targets(results)),
    ]


def summary_table(results: Results) -> Cells:
    """Return a row for each runtime and delivery under the stronger provocation."""
    table: Cells = [
        ["runtime", "delivery", "init containers that failed", "regular containers that failed"]
    ]
    for each in results.runtimes:
        for delivery in Delivery:
            cells = [
                _cell(each.total(Provocation.LATE_EXIT, delivery, kind))
                for kind in (Kind.INIT, Kind.REGULAR)
            ]
            if any(cells):
                name = "not wrapped" if delivery is Delivery.NONE else f"`{delivery}`"
                table.append([runtime_name(each), name, *cells])
    return table


def lifetime_table(results: Results) -> Cells:
    """Return a row for each lifetime of init containers under the stronger provocation."""
    table: Cells = [["lifetime", "of an unwrapped command", "`minLifetime`, delivery `Shell`"]]
    counts = {
        (condition.delivery, condition.lifetime_ms): count
        for condition, count in results.runtimes[0].counts.items()
        if condition.provocation is Provocation.LATE_EXIT and condition.kind is Kind.INIT
    }
    for lifetime in sorted({lifetime for _, lifetime in counts}):
        cells = [_cell(counts.get((d, lifetime))) for d in (Delivery.NONE, Delivery.SHELL)]
        table.append([f"{lifetime} ms" if lifetime else "none", *cells])
    return table


def _cell(count: Count | None) -> str:
    """Return a count with the bound that a reader needs."""
    if count is None:
        return ""
    if count.failed == 0:
        bound = f"at most {percent(count.high)}"
    elif count.rate > 0.5:
        bound = f"at least {percent(count.low)}"
    else:
        bound = f"at least {percent(count.low)}, at most {percent(count.high)}"
    return f"{count.failed} of {count.total:,} ({bound})"


def wrapped_init(results: Results) -> Count:
    """Return the sum over the deliveries: init containers, the default lifetime, `S`."""
    affected = results.runtimes[0]
    found = (
        affected.total(Provocation.LATE_EXIT, each, Kind.INIT)
        for each in Delivery
        if each is not Delivery.NONE
    )
    return sum_of(each for each in found if each) or Count(0, 0)


def runtime_name(result: RuntimeResult) -> str:
    """Return the name of a runtime for a reader, such as `CRI-O 1.33.12`."""
    name, _, version = result.runtime.partition("://")
    return f"{'CRI-O' if name == 'cri-o' else name} {version}"


def percent(rate: float) -> str:
    """Return a rate in percent, with two significant digits below ten percent."""
    value = rate * 100
    if value == 0 or value >= 10:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if value >= 1 else f"{value:.2f} %"


def exposure_sentence(exposure: ExposureSummary) -> str:
    """Return what is known of the exposure of a runtime's provoked containers."""
    above = ", ".join(f"{count} above {bound} ms" for bound, count in exposure.above.items())
    return (
        f"The exposure of all {exposure.containers:,} provoked containers, wrapped and not: "
        f"{exposure.median_ms:.0f} ms (median), {above}, at most {exposure.longest_ms:.0f} ms "
        f"({exposure.longest_from_begin_ms:.0f} ms from the beginning of the start). "
        f"{exposure.stopped:,} of them had ended when the runtime's state was answered."
    )
