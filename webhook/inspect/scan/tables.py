"""The tables that the text with `-v` and the HTML page of a scan have in common."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple, TypeAlias

from webhook.core.cluster.remedy_need import NEED_PHRASES
from webhook.core.defects.defect import DefectStatus
from webhook.core.printable import cut
from webhook.inspect.findings import Finding, format_time
from webhook.inspect.scan.model import (
    POSSIBLE,
    NodeGroup,
    ScanReport,
    SymptomNode,
    SymptomReport,
)

_MAX_CHARACTERS = 200
"""The maximum length of a piece of evidence. JSON has all of it."""

Row: TypeAlias = tuple[str, ...]


class Table(NamedTuple):
    """A table, or a list if it has one column."""

    title: str
    heads: Row
    """The names of the columns. `n:` stands in front of the name of a column of numbers."""
    rows: tuple[Row, ...]


def report_tables(report: ScanReport) -> Iterator[Table]:
    """Yield what a scan found apart from its symptoms, and what it read. No table is empty."""
    nodes = [
        (str(each.count), each.runtime, each.kubelet, _defects_of(each), ", ".join(each.names))
        for each in report.nodes
    ]
    possible = [(each.defect, str(each.possible), each.requires) for each in report.defects]
    needs = [
        (f"{each.policy}/{each.remedy}", NEED_PHRASES[each.status], each.message)
        for each in report.needs
    ]
    absent = [(each.id, each.verdict.text) for each in report.symptoms if not each.findings]
    areas = [(each.looked.phrase, each.limit) for each in report.areas]
    for title, heads, rows in (
        ("Nodes", ("n:nodes", "runtime", "kubelet", "certain defects", "names"), nodes),
        (
            "Possible, because it depends on configuration that no Node shows",
            ("defect", "n:nodes", "needs"),
            [row for row in possible if row[1] != "0"],
        ),
        ("Policies in force", ("policy/remedy", "result", "nodes"), needs),
        ("Not found", ("symptom", "result"), absent),
        ("What was read", ("result", "resource"), areas),
        ("Notes", ("",), [(note,) for note in report.notes]),
    ):
        if rows:
            yield Table(title, heads, tuple(rows))


def _defects_of(group: NodeGroup) -> str:
    """Return the defects of a group of nodes that do not depend on configuration."""
    found = []
    for each in group.defects:
        if each.status not in (POSSIBLE, DefectStatus.NOT_AFFECTED):
            status = "" if each.status == DefectStatus.AFFECTED else f" ({each.status})"
            cure = f" (cured by {each.cured_by})" if each.cured_by else ""
            found.append(f"{each.defect}{status}{cure}")
    return ", ".join(found) or "none"


def place_rows(symptom: SymptomReport, most: int) -> Iterator[Row]:
    """Yield the workloads with a symptom, or the nodes if `most` rows do not suffice.

    The last row counts those that have no row.
    """
    places: list[tuple[str, Finding | SymptomNode]] = [
        (f"{each.namespace} {each.workload}", each) for each in symptom.findings
    ]
    if (len(places) > most or symptom.unlisted) and len(symptom.nodes) < len(places):
        places = [(f"node {each.title}", each) for each in symptom.nodes]
    for name, each in places[:most]:
        yield name, each.certainty, times(each.count), time_or_dash(each.last_seen)
    if hidden := symptom.count - sum(each.count for _, each in places[:most]):
        yield "others", "", times(hidden), ""


def finding_lines(finding: Finding) -> Iterator[str]:
    """Yield where, how often and when something was found, then what, its evidence, and advice."""
    first, last = finding.first_seen, finding.last_seen
    period = ""
    if first is not None and last is not None:
        period = f", {format_time(first)}" + (f" to {format_time(last)}" if first != last else "")
    workload = f"{finding.namespace} {finding.workload}"
    yield f"{finding.certainty}: {workload}: {times(finding.count)}{period}"
    yield finding.sentence
    for each in finding.evidence:
        value = cut(" ".join(each.value.split()), _MAX_CHARACTERS)
        yield f"{each.object}: {each.field}: {value}"
    if finding.advice:
        yield finding.advice


def times(count: int) -> str:
    """Return how often something was found."""
    return "once" if count == 1 else f"{count} times"


def time_or_dash(time: datetime | None) -> str:
    """Return a time for people. It is not known of every finding."""
    return format_time(time) if time is not None else "–"
