"""The report of a scan as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from textwrap import indent, wrap

from webhook.core.defects.defect import DefectStatus
from webhook.core.printable import printable
from webhook.inspect.findings import Answer, Evidence, Finding, Looked
from webhook.inspect.scan.model import DefectNodes, NodeGroup, ScanReport, SymptomReport

_MAX_FINDINGS = 10
"""The maximum number of workloads for each symptom. JSON has all of them."""
_MAX_CHARACTERS = 200
"""The maximum length of a piece of evidence. JSON has all of it."""
_WIDTH = 100


def render_text(report: ScanReport) -> str:
    """Return the report as lines without control characters, because a terminal executes them."""
    return "".join(f"{printable(line)}\n" for line in _lines(report))


def _lines(report: ScanReport) -> Iterator[str]:
    where = f"namespace {report.namespace}" if report.namespace else "all namespaces"
    version = f", Kubernetes {report.server_version}" if report.server_version else ""
    nodes = sum(group.count for group in report.nodes)
    yield f"Scan of {report.cluster}{version}: {nodes} nodes, {report.pods} pods in {where}"
    yield from (f"  {note}" for note in report.notes)
    yield ""
    yield "NODES"
    yield from _node_lines(report)
    yield ""
    yield "SYMPTOMS"
    for symptom in report.symptoms:
        yield from _symptom_lines(symptom)
    if report.needs:
        yield ""
        yield "POLICIES"
        answers = {"True": "still needed", "False": "no longer needed"}
        for need in report.needs:
            answer = answers.get(need.status, "perhaps still needed")
            yield from _wrapped(f"{need.policy}/{need.remedy}: {answer}: {need.message}", 2)
    limited = [area for area in report.areas if area.looked is not Looked.LOOKED_AT]
    if limited:
        yield ""
        yield "LIMITS"
        for area in limited:
            yield from _wrapped(f"{area.looked.phrase}: {area.limit}", 2)


def _node_lines(report: ScanReport) -> Iterator[str]:
    if not report.nodes:
        yield "  not known"
        return
    for group in report.nodes:
        more = ", …" if group.count > len(group.names) else ""
        software = f"{group.runtime}, kubelet {group.kubelet}"
        yield f"  {group.count} × {software}: {', '.join(group.names)}{more}"
        for status, defects in _by_status(group).items():
            yield from _wrapped(f"{status}: {', '.join(defects)}", 6)
    yield ""
    yield "DEFECTS"
    for defect in report.defects:
        yield from _wrapped(_defect_line(defect), 2)


def _by_status(group: NodeGroup) -> dict[str, list[str]]:
    """Return the defects of a group of nodes, by their status. Omit those that it does not have."""
    result: dict[str, list[str]] = {}
    for each in group.defects:
        if each.status is not DefectStatus.NOT_AFFECTED:
            cure = f" (cured by {each.cured_by})" if each.cured_by else ""
            result.setdefault(each.status, []).append(f"{each.defect}{cure}")
    return result


def _defect_line(defect: DefectNodes) -> str:
    count = defect.affected + defect.partly
    line = f"{defect.defect}: {count} of {defect.total} nodes: {defect.title}"
    if count and defect.policies:
        # A policy may be for a single namespace, so it need not help the pods of these nodes.
        line += (
            f"; policy {defect.policies[0]} has a remedy"
            if len(defect.policies) == 1
            else f"; policies {', '.join(defect.policies)} have a remedy"
        )
    elif count and defect.remedies:
        line += f"; remedy: {' or '.join(defect.remedies)}"
    return line


def _symptom_lines(symptom: SymptomReport) -> Iterator[str]:
    yield from _wrapped(f"{symptom.title} ({symptom.id})", 2)
    yield from _wrapped(symptom.verdict.text, 6)
    for finding in symptom.findings[:_MAX_FINDINGS]:
        yield from _finding_lines(finding)
    left = symptom.findings[_MAX_FINDINGS:]
    hidden = sum(finding.count for finding in left) + symptom.unlisted
    if hidden:
        yield f"      and {hidden} more at other workloads; see -o json"
    if symptom.verdict.answer is Answer.FOUND:
        yield from _wrapped(symptom.advice, 6)
        if symptom.policy:
            yield from indent(symptom.policy, " " * 8).splitlines()


def _finding_lines(finding: Finding) -> Iterator[str]:
    times = f"{finding.count} times" if finding.count > 1 else "once"
    workload = f"{finding.namespace} {finding.workload}"
    yield f"      {finding.certainty}: {workload}: {times}{_period(finding)}"
    yield from _wrapped(finding.sentence, 10)
    for evidence in finding.evidence:
        yield from _wrapped(f"- {_evidence(evidence)}", 10)
    if finding.advice:
        # A command stays on one line, so that it can be copied.
        is_command = finding.advice.startswith("kubectl ")
        line = f"> {finding.advice}"
        yield from [" " * 10 + line] if is_command else _wrapped(line, 10)


def _period(finding: Finding) -> str:
    first, last = finding.first_seen, finding.last_seen
    if first is None or last is None:
        return ""
    return (
        f", at {format_time(first)}"
        if first == last
        else f", {format_time(first)} to {format_time(last)}"
    )


def _evidence(evidence: Evidence) -> str:
    value = " ".join(evidence.value.split())
    if len(value) > _MAX_CHARACTERS:
        value = f"{value[:_MAX_CHARACTERS]}…"
    return f"{evidence.object}: {evidence.field}: {value}"


def format_time(time: datetime) -> str:
    """Return a time of the cluster for people."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _wrapped(text: str, spaces: int) -> list[str]:
    """Return the lines of a text, all with the same indentation. Commands are not cut."""
    prefix = " " * spaces
    return wrap(
        text,
        _WIDTH,
        initial_indent=prefix,
        subsequent_indent=prefix + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
