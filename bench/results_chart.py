"""The results as an SVG chart: bars in panels, with the range over the rounds as a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from bench import core, end_to_end, growth, throughput
from bench.bar_chart import Bar, Panel, render_panels
from bench.format import format_value
from bench.measurement import Measurement
from bench.report_table import ReportTable
from bench.run import CONNECTIONS

# A bar's label, its figure, and whether it is podsettle's.
_Figure = tuple[str, Measurement, bool]


def render_chart(parts: Mapping[str, ReportTable]) -> str:
    """Return an SVG document with a panel for each measured part."""
    return render_panels(list(_panels(parts)), "Benchmark results of podsettle")


def _panels(parts: Mapping[str, ReportTable]) -> Iterator[Panel]:
    if part := parts.get(throughput.NAME):
        yield _panel(
            "Reviews of an 8 KB pod per CPU-second (more is better)",
            [
                (
                    name,
                    part.figure(throughput.row(row, CONNECTIONS), "reviews per CPU-second"),
                    ours,
                )
                for name, row, ours in (
                    ("bare echo", "echo", False),
                    ("podsettle", "podsettle", True),
                    ("Go: agnhost", "agnhost", False),
                )
            ],
        )
    if part := parts.get(end_to_end.NAME):
        yield _panel(
            "Increment of a pod creation, p50 (less is better)",
            [
                (name, part.figure(name, end_to_end.INCREMENT), name == end_to_end.PODSETTLE)
                for name in (end_to_end.NATIVE, end_to_end.PODSETTLE)
            ],
        )
    if part := parts.get(growth.NAME):
        for title, is_pod in (("cluster grows", False), ("pod grows", True)):
            yield _panel(
                f"Reviews per second as the {title} (more is better)",
                [
                    (name, figures["reviews/s"], not name.endswith(", echo"))
                    for name, figures in part.rows.items()
                    if growth.is_about_pods(name) is is_pod
                ],
            )
    if part := parts.get(core.NAME):
        yield _panel(
            "CPU time of the core for an 8 KB review (less is better)",
            [
                (name, figures["time"], name not in (core.ORJSON, core.JSON))
                for name, figures in part.rows.items()
            ],
        )


def _panel(title: str, figures: Iterable[_Figure]) -> Panel:
    bars = (
        Bar(
            label,
            figure.median,
            figure.low,
            figure.high,
            format_value(figure.median, figure.unit),
            ours,
        )
        for label, figure, ours in figures
    )
    return Panel(title, tuple(bars))
