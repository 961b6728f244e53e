"""The results of `make umount` as text, as JSON, as a chart and on the page of the report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.bar_chart import Bar, Panel, render_panels
from bench.format import format_value
from bench.measurement import Measurement
from bench.report import fill_page, markdown_table, text_table
from bench.report_table import ReportTable

UMOUNT, GAP, CALLS, FAILURES = "umount", "gap", "umount2 calls", "failures"
RATIO = "umount, ratio to volatile"
VOLATILE = "volatile"

# The names of the two tables.
LOAD, INJECTED = "load", "injected"

PAGE = Path(__file__).parents[2] / "docs" / "reports" / "containerd-slow-umount.md"
RESULTS, CHART = PAGE.with_suffix(".json"), PAGE.with_suffix(".svg")
_MARKER = "umount"

Tables = Mapping[str, ReportTable]


def as_json(tables: Tables, environment: Mapping[str, str]) -> str:
    """Return the content of the results file."""
    data = {
        "environment": dict(environment),
        "parts": {name: table.as_json() for name, table in tables.items()},
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> tuple[dict[str, ReportTable], dict[str, str]]:
    """Return the tables and the environment of a results file."""
    data = json.loads(text)
    tables = {name: ReportTable.from_json(name, part) for name, part in data["parts"].items()}
    return tables, data["environment"]


def as_text(tables: Tables) -> str:
    """Return the tables for a terminal."""
    return "\n\n".join("\n".join(text_table(table)) for table in tables.values()) + "\n"


def as_markdown(tables: Tables, environment: Mapping[str, str]) -> str:
    """Return the tables and the chart for the page of the report."""
    return "\n".join(_page_lines(tables, environment))


def write_docs(tables: Tables, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Write the results to the page of the report and beside it. Return the written files."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(fill_page(page, as_markdown(tables, environment), _MARKER), encoding="utf-8")
    RESULTS.write_text(as_json(tables, environment), encoding="utf-8")
    CHART.write_text(render_chart(tables), encoding="utf-8")
    return PAGE, RESULTS, CHART


def render_chart(tables: Tables) -> str:
    """Return an SVG document with the umount times, the gaps and the injected delays."""
    panels = [
        _panel(tables[LOAD], UMOUNT, "Umount of an init container's root filesystem"),
        _panel(tables[LOAD], GAP, "Gap between an init container and the next one"),
        _panel(tables[INJECTED], GAP, "The same gap, with each umount2 call delayed"),
    ]
    return render_panels(panels, "Umount times and gaps, with and without volatile")


def _panel(table: ReportTable, column: str, title: str) -> Panel:
    bars = tuple(
        _bar(name, figures[column], ours=name.endswith(VOLATILE))
        for name, figures in table.rows.items()
    )
    return Panel(f"{title}, median and range (less is better)", bars)


def _bar(name: str, figure: Measurement, *, ours: bool) -> Bar:
    text = format_value(figure.median, figure.unit)
    return Bar(name, figure.median, figure.low, figure.high, text, ours)


def _page_lines(tables: Tables, environment: Mapping[str, str]) -> Iterator[str]:
    details = ", ".join(f"{name} {value}" for name, value in environment.items())
    yield f"Measured with `make umount`: {details}."
    for table in tables.values():
        yield from ("", f"**{table.title}**", "", *markdown_table(table))
    yield from ("", f"![The figures above as bars]({CHART.name})", "")
