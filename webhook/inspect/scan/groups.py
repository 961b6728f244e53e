"""The rows of the table of symptoms: workloads, or nodes if there are too many workloads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from webhook.inspect.findings import Finding
from webhook.inspect.scan.model import SymptomReport

MAX_ROWS = 8
"""The maximum number of rows for a symptom, because people read the table on one screen."""


class Row(NamedTuple):
    """A workload or a node with a symptom."""

    symptom: str
    name: str
    times: int
    newest: datetime | None


class Rows(NamedTuple):
    """The rows of a symptom, and what they leave out."""

    rows: tuple[Row, ...]
    hidden: int
    """How many times the symptom was found at workloads or nodes that have no row."""


def rows_of(symptom: SymptomReport, most: int = MAX_ROWS) -> Rows:
    """Return a row for each workload, or for each node if that takes too many rows."""
    workloads = _by_workload(symptom.findings)
    if (len(workloads) > most or symptom.unlisted) and len(symptom.nodes) < len(workloads):
        rows = [
            Row(
                symptom.id,
                f"node {node.name}{f' ({node.runtime})' if node.runtime else ''}",
                node.count,
                node.last_seen,
            )
            for node in symptom.nodes
        ]
    else:
        rows = [Row(symptom.id, name, *found) for name, found in workloads.items()]
    rows.sort(key=lambda row: -row.times)
    shown = tuple(rows[:most])
    return Rows(shown, symptom.count - sum(row.times for row in shown))


def _by_workload(findings: Iterable[Finding]) -> dict[str, tuple[int, datetime | None]]:
    """Return the number of findings and the newest time of each workload."""
    found: dict[str, tuple[int, datetime | None]] = {}
    for each in findings:
        name = f"{each.namespace} {each.workload}"
        count, newest = found.get(name, (0, None))
        times = [time for time in (newest, each.last_seen) if time is not None]
        found[name] = count + each.count, max(times, default=None)
    return found
