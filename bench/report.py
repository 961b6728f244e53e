"""The results as text, as JSON and as docs/performance.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import against
from bench.environment import PROCESSOR
from bench.errors import BenchError
from bench.format import format_measurement, format_value
from bench.measurement import Measurement
from bench.report_table import ReportTable
from bench.targets import evaluate_targets
from bench.text_table import Cells, aligned_lines, markdown_rows


def as_json(parts: Mapping[str, ReportTable], environment: Mapping[str, str]) -> str:
    """Return the content of the results file: environment, targets and all tables."""
    data: dict[str, Any] = {
        "environment": dict(environment),
        "targets": [
            {
                "what": verdict.target.description,
                "bound": verdict.target.bound,
                "aim": verdict.target.aim,
                "at least": verdict.target.at_least,
                "unit": verdict.target.unit,
                "verdict": verdict.result,
                "measured": verdict.measurement.as_json() if verdict.measurement else None,
            }
            for verdict in evaluate_targets(parts, environment[PROCESSOR])
        ],
        "parts": {name: part.as_json() for name, part in parts.items()},
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> tuple[dict[str, ReportTable], dict[str, str]]:
    """Return the tables and the environment of a results file."""
    data = json.loads(text)
    parts = {name: ReportTable.from_json(name, part) for name, part in data["parts"].items()}
    return parts, data["environment"]


def as_text(
    parts: Mapping[str, ReportTable], environment: Mapping[str, str], *, with_targets: bool = True
) -> str:
    """Return the tables for a terminal, and the targets if `with_targets` is set."""
    lines: list[str] = []
    for part in parts.values():
        lines += ["", *text_table(part)]
    if with_targets:
        lines += ["", "Targets", *aligned_lines(_target_table(parts, environment))]
    else:
        lines += ["", "A short run: the figures mean nothing."]
    lines.append("")
    return "\n".join(lines)


def as_markdown(parts: Mapping[str, ReportTable], environment: Mapping[str, str]) -> str:
    """Return the tables and the targets as sections of a Markdown page."""
    lines = ["", "## Targets", "", *markdown_rows(_target_table(parts, environment)), ""]
    lines += [_measured_with(environment), "", "![The figures below as bars](performance.svg)", ""]
    for part in parts.values():
        lines += [f"## {part.title}", "", *markdown_table(part), ""]
    return "\n".join(lines)


def _measured_with(environment: Mapping[str, str]) -> str:
    details = ", ".join(f"{name} {value}" for name, value in environment.items())
    return f"Measured with: {details}."


def text_table(part: ReportTable) -> Iterator[str]:
    """Yield the lines of a part's title, table and notes for a terminal."""
    yield part.title
    yield from aligned_lines(_result_table(part))
    yield from (f"  - {note}" for note in part.notes)


def markdown_table(part: ReportTable) -> Iterator[str]:
    """Yield the lines of a part's table and notes in Markdown."""
    yield from markdown_rows(_result_table(part))
    yield ""
    yield from (f"- {note}" for note in part.notes)


def fill_page(page: str, results: str, name: str = "bench") -> str:
    """Return the page with `results` between the markers `<!-- NAME: begin -->` and `end`.

    Raises BenchError if the page does not contain the markers exactly once.
    """
    marked = re.compile(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    new, count = marked.subn(lambda match: f"{match[1]}{results}{match[2]}", page)
    if count != 1:
        raise BenchError("the page does not contain the markers for the results exactly once")
    return new


def fill_processor_row(
    page: str, parts: Mapping[str, ReportTable], environment: Mapping[str, str]
) -> str:
    """Return the page with a row for the processor of this run. Rows of others stay."""
    verdicts = [
        verdict
        for verdict in evaluate_targets(parts, environment[PROCESSOR])
        if verdict.target.processors and verdict.measurement
    ]
    ratios = (format_value(each.measurement.median, "×") for each in verdicts if each.measurement)
    processor, commit = environment[PROCESSOR], environment["commit"]
    row = f"| {' | '.join((processor, commit, *ratios))} |"
    begin, end = (f"<!-- processors: {word} -->" for word in ("begin", "end"))
    lines = page.partition(begin)[2].partition(end)[0].strip().splitlines()
    others = [line for line in lines if not line.startswith(f"| {processor} |")]
    return fill_page(page, "\n".join([*others, row, ""]), "processors")


def write_docs(
    directory: Path, parts: Mapping[str, ReportTable], environment: Mapping[str, str]
) -> None:
    """Write the results to docs/performance.md."""
    path = directory / "performance.md"
    page = fill_processor_row(path.read_text(encoding="utf-8"), parts, environment)
    path.write_text(fill_page(page, as_markdown(parts, environment)), encoding="utf-8")


def write_comparison(directory: Path, part: ReportTable, environment: Mapping[str, str]) -> None:
    """Write the comparison with another commit to docs/performance.md."""
    path = directory / "performance.md"
    lines = [
        _measured_with(environment),
        "",
        *markdown_rows(against.comparison_table(part)),
        "",
        *(f"- {note}" for note in part.notes),
        "",
    ]
    page = fill_page(path.read_text(encoding="utf-8"), "\n".join(lines), against.NAME)
    path.write_text(page, encoding="utf-8")


def _result_table(part: ReportTable) -> Cells:
    columns = list(dict.fromkeys(column for row in part.rows.values() for column in row))
    table: Cells = [["", *columns]]
    for name, figures in part.rows.items():
        cells = (figures.get(column) for column in columns)
        table.append([name, *(format_measurement(cell) if cell else "" for cell in cells)])
    return table


def _target_table(parts: Mapping[str, ReportTable], environment: Mapping[str, str]) -> Cells:
    table: Cells = [["", "target", "aim", "measured", "result"]]
    for verdict in evaluate_targets(parts, environment[PROCESSOR]):
        target = verdict.target
        bound = f"{'≥' if target.at_least else '≤'} {format_value(target.bound, target.unit)}"
        aim = "" if target.aim is None else format_value(target.aim, target.unit)
        measured = ""
        if verdict.measurement:
            measured = format_measurement(Measurement(verdict.measurement.values, target.unit))
        table.append([target.text, bound, aim, measured, verdict.result])
    return table
