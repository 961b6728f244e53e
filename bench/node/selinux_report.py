"""The results of `make selinux` as text, as JSON and on the page of the report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.node.selinux_cases import SETTLED, UNSETTLED, Case
from bench.node.selinux_starts import FIRST_LABELS, LATER, LATER_LABELS, row
from bench.report import fill_page, markdown_table, text_table
from bench.report_table import ReportTable
from bench.text_table import Cells, aligned_lines, markdown_rows
from tests.support.vm.image import SIZES

MAX_SETTLED_RATIO, MIN_UNSETTLED_RATIO = 1.5, 3.0
"""Of the later starts with the largest volume, to those with the smallest one."""

PAGE = Path(__file__).parents[2] / "docs" / "reports" / "crio-selinux-relabel.md"
RESULTS = PAGE.with_suffix(".json")
_MARKER, _SEEN_MARKER = "selinux", "selinux seen"
_SMALL, _LARGE = min(SIZES), max(SIZES)


def as_json(table: ReportTable, cases: Sequence[Case], environment: Mapping[str, str]) -> str:
    """Return the content of the results file."""
    data = {
        "environment": dict(environment),
        "parts": {table.name: table.as_json()},
        "cases": [asdict(case) for case in cases],
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> tuple[ReportTable, list[Case], dict[str, str]]:
    """Return the table, the cases and the environment of a results file."""
    data = json.loads(text)
    ((name, part),) = data["parts"].items()
    cases = [Case(**case) for case in data["cases"]]
    return ReportTable.from_json(name, part), cases, data["environment"]


def as_text(table: ReportTable, cases: Sequence[Case]) -> str:
    """Return both tables for a terminal."""
    return "\n".join([*text_table(table), "", *aligned_lines(_case_table(cases))]) + "\n"


def as_markdown(table: ReportTable, cases: Sequence[Case], environment: Mapping[str, str]) -> str:
    """Return both tables for the page of the report."""
    return "\n".join(_page_lines(table, cases, environment))


def write_docs(
    table: ReportTable, cases: Sequence[Case], environment: Mapping[str, str]
) -> tuple[Path, ...]:
    """Write the results to the page of the report and beside it. Return the written files."""
    page = PAGE.read_text(encoding="utf-8")
    page = fill_page(page, seen_by_this_project(table, environment), _SEEN_MARKER)
    page = fill_page(page, as_markdown(table, cases, environment), _MARKER)
    PAGE.write_text(page, encoding="utf-8")
    RESULTS.write_text(as_json(table, cases, environment), encoding="utf-8")
    return PAGE, RESULTS


def seen_by_this_project(table: ReportTable, environment: Mapping[str, str]) -> str:
    """Return the rows that say how the defect was provoked, and what the policy changed."""
    rows = {
        "provoked by": f"a volume with {_LARGE:,} files, in a virtual machine with SELinux",
        "without the policy": f"CreateContainer took {_ratio(table, UNSETTLED):.1f} times as long "
        f"with {_LARGE:,} files as with {_SMALL:,}, from the second start on",
        "with it": f"{_ratio(table, SETTLED):.1f} times",
        "versions": f"CRI-O {environment['CRI-O']}",
        "date": environment["date"],
        "repeat it": "`make selinux`",
    }
    lines = ("| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items()), "")
    return "\n".join(lines)


def unproven(table: ReportTable, cases: Sequence[Case]) -> list[str]:
    """Return what the results do not show of the defect and of its cure."""
    found = []
    if (ratio := _ratio(table, SETTLED)) >= MAX_SETTLED_RATIO:
        found.append(f"{SETTLED}: the time grew {ratio:.2f} times: expected < {MAX_SETTLED_RATIO}")
    if (ratio := _ratio(table, UNSETTLED)) <= MIN_UNSETTLED_RATIO:
        found.append(
            f"{UNSETTLED}: the time grew {ratio:.2f} times: expected > {MIN_UNSETTLED_RATIO}"
        )
    for kind in (UNSETTLED, SETTLED):
        figures = table.rows[row(kind, _LARGE)]
        if figures[FIRST_LABELS].median < _LARGE:
            found.append(f"{kind}: the first start wrote {figures[FIRST_LABELS].median:.0f} labels")
        if written := figures[LATER_LABELS].high:
            found.append(f"{kind}: a later start wrote {written:.0f} labels: expected none")
    return found + [
        f"CRI-O {case.release}, {case.configuration}, {case.pod}: {case.outcome}: "
        f"expected: {case.expected}"
        for case in cases
        if case.outcome != case.expected
    ]


def _ratio(table: ReportTable, kind: str) -> float:
    large, small = (table.figure(row(kind, files), LATER) for files in (_LARGE, _SMALL))
    return large.median / small.median


def _case_table(cases: Sequence[Case]) -> Cells:
    releases = list(dict.fromkeys(case.release for case in cases))
    outcomes = {(case.configuration, case.pod, case.release): case.outcome for case in cases}
    names = list(dict.fromkeys((case.configuration, case.pod) for case in cases))
    table: Cells = [["configuration", "pod", *(f"CRI-O {each.lstrip('v')}" for each in releases)]]
    for name in names:
        table.append([*name, *(outcomes.get((*name, each), "") for each in releases)])
    return table


def _page_lines(
    table: ReportTable, cases: Sequence[Case], environment: Mapping[str, str]
) -> Iterator[str]:
    details = ", ".join(f"{name} {value}" for name, value in environment.items())
    yield f"Measured with `make selinux`: {details}."
    yield from ("", *markdown_table(table))
    yield from ("", *markdown_rows(_case_table(cases)), "")
