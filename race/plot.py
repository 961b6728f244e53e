"""The results as an SVG chart: the rates under the stronger provocation, with their bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bench.bar_chart import Bar, Panel, render_panels
from race.cells import Condition, Delivery, Kind, Provocation
from race.report import percent, runtime_name
from race.results import Count, Results


def render_chart(results: Results) -> str:
    """Return an SVG document with a panel for each kind of container, and one for lifetimes."""
    panels = [*(_runtime_panel(results, kind) for kind in Kind), _lifetime_panel(results)]
    return render_panels(panels, "Shares of containers that failed")


def _runtime_panel(results: Results, kind: Kind) -> Panel:
    bars = (
        _bar(
            f"{runtime_name(each)}, {'not wrapped' if delivery is Delivery.NONE else delivery}",
            count,
            ours=delivery is not Delivery.NONE,
        )
        for each in results.runtimes
        for delivery in Delivery
        if (count := each.total(Provocation.LATE_EXIT, delivery, kind))
    )
    title = f"An exit code other than 0: {kind} containers, one-sided 95 % bounds"
    return Panel(title, tuple(bars))


def _lifetime_panel(results: Results) -> Panel:
    affected = results.runtimes[0]
    title = f"The same by the lifetime of the container, {runtime_name(affected)}"
    return Panel(title, tuple(_lifetime_bars(affected.counts)))


def _lifetime_bars(counts: Mapping[Condition, Count]) -> Iterator[Bar]:
    """Yield a bar for each lifetime of init containers: of the command, and of the wrapper."""
    for delivery, name in ((Delivery.NONE, "command"), (Delivery.SHELL, "minLifetime")):
        for condition, count in counts.items():
            if (condition.provocation, condition.kind, condition.delivery) == (
                Provocation.LATE_EXIT,
                Kind.INIT,
                delivery,
            ):
                label = f"{name}: {condition.lifetime_ms} ms"
                yield _bar(label, count, ours=condition.is_wrapped)


def _bar(label: str, count: Count, *, ours: bool) -> Bar:
    text = f"{count.failed} of {count.total:,} ({percent(count.rate)})"
    return Bar(label, count.rate, count.low, count.high, text, ours)
