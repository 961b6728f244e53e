"""The results of `make umount` as text, as JSON, as a chart and on the page of the report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from bench.bar_chart import Bar, Panel, render_panels
from bench.format import format_value
from bench.measurement import Measurement
from bench.report import fill_page, markdown_table, text_table
from bench.report_table import ReportTable

UMOUNT, GAP, SHOWN_RUNNING = "umount", "gap", "Running after the end"
FAILURES, LATE = "failures", "late pods"
VOLATILE = "volatile"
LATE_SECONDS = 10
"""containerd's own limit for the umount. Without the defect, the next container follows in 2 s."""

PAGE = Path(__file__).parents[2] / "docs" / "reports" / "containerd-slow-umount.md"
RESULTS, CHART = PAGE.with_suffix(".json"), PAGE.with_suffix(".svg")
_MARKER, _SEEN_MARKER = "umount", "umount seen"
_Row: TypeAlias = dict[str, Measurement]


def as_json(table: ReportTable, environment: Mapping[str, str]) -> str:
    """Return the content of the results file."""
    data = {"environment": dict(environment), "parts": {table.name: table.as_json()}}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> tuple[ReportTable, dict[str, str]]:
    """Return the table and the environment of a results file."""
    data = json.loads(text)
    ((name, part),) = data["parts"].items()
    return ReportTable.from_json(name, part), data["environment"]


def as_text(table: ReportTable) -> str:
    """Return the table for a terminal."""
    return "\n".join(text_table(table)) + "\n"


def as_markdown(table: ReportTable, environment: Mapping[str, str]) -> str:
    """Return the table and the chart for the page of the report."""
    return "\n".join(_page_lines(table, environment))


def write_docs(table: ReportTable, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Write the results to the page of the report and beside it. Return the written files."""
    page = PAGE.read_text(encoding="utf-8")
    page = fill_page(page, seen_by_this_project(table, environment), _SEEN_MARKER)
    PAGE.write_text(fill_page(page, as_markdown(table, environment), _MARKER), encoding="utf-8")
    RESULTS.write_text(as_json(table, environment), encoding="utf-8")
    CHART.write_text(render_chart(table), encoding="utf-8")
    return PAGE, RESULTS, CHART


def seen_by_this_project(table: ReportTable, environment: Mapping[str, str]) -> str:
    """Return the rows that say how the defect was provoked, and what the policy changed."""
    plain, settled = _plain(table), _settled(table)
    rows = {
        "provoked by": "an init container that writes more than a slow disk can write in 10 s. "
        f"Pods that write less are among the {_pods(plain)} too",
        "without the policy": f"{_late(plain)} of {_pods(plain)} pods started more than "
        f"{LATE_SECONDS} s late, each with containerd's error",
        "with it": f"{_late(settled)} of {_pods(settled)} pods",
        "versions": ", ".join(
            f"{name} {environment[name]}" for name in ("Kubernetes", "containerd")
        ),
        "date": environment["date"],
        "repeat it": "`make umount`",
    }
    lines = ("| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items()), "")
    return "\n".join(lines)


def render_chart(table: ReportTable) -> str:
    """Return an SVG document with the umount times and the gaps."""
    panels = [
        _panel(table, UMOUNT, "Umount of an init container's root filesystem"),
        _panel(table, GAP, "Gap between an init container and the next container"),
    ]
    return render_panels(panels, "Umount times and gaps on a slow disk, with and without volatile")


def unproven(table: ReportTable) -> list[str]:
    """Return what the figures do not show of the defect and of its cure."""
    plain, settled = _plain(table), _settled(table)
    found = []
    late, pods = _late(plain), _pods(plain)
    if late * 2 < pods:
        found.append(f"{late} of {pods} unsettled pods were late: expected at least half of them")
    others = sum(
        gap > LATE_SECONDS and not failures
        for row in plain
        for gap, failures in zip(row[GAP].values, row[FAILURES].values, strict=True)
    )
    if others:
        found.append(f"{others} unsettled pods were late without a failure in containerd's log")
    if late := _late(settled):
        found.append(f"{late} settled pods were late: expected none")
    return found


def _plain(table: ReportTable) -> list[_Row]:
    return [row for name, row in table.rows.items() if not name.endswith(VOLATILE)]


def _settled(table: ReportTable) -> list[_Row]:
    return [row for name, row in table.rows.items() if name.endswith(VOLATILE)]


def _pods(rows: list[_Row]) -> int:
    return sum(len(row[GAP].values) for row in rows)


def _late(rows: list[_Row]) -> int:
    return sum(round(row[LATE].median) for row in rows)


def _panel(table: ReportTable, column: str, title: str) -> Panel:
    bars = tuple(
        _bar(name, figures[column], ours=name.endswith(VOLATILE))
        for name, figures in table.rows.items()
    )
    return Panel(f"{title}, median and range (less is better)", bars)


def _bar(name: str, figure: Measurement, *, ours: bool) -> Bar:
    text = format_value(figure.median, figure.unit)
    return Bar(name, figure.median, figure.low, figure.high, text, ours)


def _page_lines(table: ReportTable, environment: Mapping[str, str]) -> Iterator[str]:
    details = ", ".join(f"{name} {value}" for name, value in environment.items())
    yield f"Measured with `make umount`: {details}."
    yield from ("", *markdown_table(table))
    yield from ("", f"![The figures above as bars]({CHART.name})", "")
