"""Results: tables for people, JSON for programs, and the page in docs/."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.format import figure, measured
from bench.measurement import Measure
from bench.report_table import Part
from bench.targets import verdicts

Table = list[Sequence[str]]
_PAGE_PART = re.compile(r"(<!-- bench: begin -->\n).*?(<!-- bench: end -->)", re.DOTALL)


def as_json(parts: Mapping[str, Part], environment: Mapping[str, str]) -> str:
    """Everything that was measured."""
    data: dict[str, Any] = {
        "environment": dict(environment),
        "targets": [
            {
                "what": verdict.target.what,
                "bound": verdict.target.bound,
                "at least": verdict.target.at_least,
                "unit": verdict.target.unit,
                "verdict": verdict.word,
                "measured": verdict.measure.as_json() if verdict.measure else None,
            }
            for verdict in verdicts(parts)
        ],
        "parts": {name: part.as_json() for name, part in parts.items()},
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> tuple[dict[str, Part], dict[str, str]]:
    """The parts and the environment of a results file."""
    data = json.loads(text)
    parts = {name: Part.from_json(name, part) for name, part in data["parts"].items()}
    return parts, data["environment"]


def as_text(parts: Mapping[str, Part], *, judged: bool = True) -> str:
    """Tables for a terminal; judged by what has to hold, unless the figures mean nothing."""
    lines: list[str] = []
    for part in parts.values():
        lines += ["", part.title, *_plain(_cells(part)), *(f"  - {note}" for note in part.notes)]
    if judged:
        lines += ["", "What has to hold", *_plain(_targets(parts))]
    else:
        lines += ["", "A short run: the figures mean nothing."]
    lines.append("")
    return "\n".join(lines)


def as_markdown(parts: Mapping[str, Part], environment: Mapping[str, str]) -> str:
    """The same as sections of a page."""
    lines = ["", "## What has to hold", "", *_piped(_targets(parts)), ""]
    shape = ", ".join(f"{what} {value}" for what, value in environment.items())
    lines += [f"Measured with: {shape}.", "", "![The figures below as bars](performance.svg)", ""]
    for part in parts.values():
        lines += [f"## {part.title}", "", *_piped(_cells(part)), ""]
        lines += [f"- {note}" for note in part.notes] + [""]
    return "\n".join(lines)


def filled(page: str, results: str) -> str:
    """A page with results between its markers."""
    new, count = _PAGE_PART.subn(lambda found: f"{found[1]}{results}{found[2]}", page)
    if count != 1:
        raise BenchError("the page has no place for results")
    return new


def write_docs(directory: Path, results: str, picture: str) -> None:
    """Bring docs/performance.md up to date."""
    page = directory / "performance.md"
    page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    (directory / "performance.svg").write_text(picture, encoding="utf-8")


def _cells(part: Part) -> Table:
    columns = list(dict.fromkeys(column for row in part.rows.values() for column in row))
    table: Table = [["", *columns]]
    for name, figures in part.rows.items():
        cells = (figures.get(column) for column in columns)
        table.append([name, *(measured(cell) if cell else "" for cell in cells)])
    return table


def _targets(parts: Mapping[str, Part]) -> Table:
    table: Table = [["", "has to be", "was", ""]]
    for verdict in verdicts(parts):
        target = verdict.target
        bound = f"{'≥' if target.at_least else '≤'} {figure(target.bound, target.unit)}"
        was = measured(_in_unit(verdict.measure, target.unit)) if verdict.measure else ""
        table.append([target.what, bound, was, verdict.word])
    return table


def _in_unit(measure: Measure, unit: str) -> Measure:
    return Measure(measure.values, unit)


def _plain(table: Table) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  " + "  ".join(cells).rstrip()


def _piped(table: Table) -> Iterator[str]:
    head, *rows = table
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
