"""The report of a scan as text for a terminal: a summary first, then tables, then details."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from textwrap import indent, wrap

from webhook.core.constants import OBJECT_NAME
from webhook.core.defects.defect import DefectStatus
from webhook.core.printable import cut, printable
from webhook.inspect.findings import Evidence, Finding, Looked, format_time
from webhook.inspect.scan.groups import MAX_ROWS, rows_of
from webhook.inspect.scan.model import POSSIBLE, NodeGroup, ScanReport, SymptomReport
from webhook.inspect.scan.summary import found_symptoms, summary_of

_MAX_FINDINGS = 10
"""The maximum number of workloads for each symptom in the details. JSON has all of them."""
_MAX_COMMANDS = 5
"""The maximum number of commands for a symptom. JSON has all of them."""
_MAX_DETAILED_ROWS = 50
"""The maximum number of rows for each symptom with details."""
_MAX_CHARACTERS = 200
"""The maximum length of a piece of evidence. JSON has all of it."""
_MAX_SUMMARY_LINES = 10
_MIN_SYMPTOM_LINES = 2
"""The minimum of these lines that name symptoms: one symptom, and how many others there are."""
_WIDTH = 80
"""The columns of a terminal. Commands are not cut."""
_EXPLAINED = {"Deployment": "apps", "StatefulSet": "apps", "DaemonSet": "apps", "Job": "batch"}
"""The controllers of pods that `podsettle explain` knows, with their API groups."""
_STATUSES = (DefectStatus.AFFECTED, DefectStatus.PARTLY_AFFECTED, DefectStatus.UNVERIFIED)


def render_text(report: ScanReport, *, details: bool = False) -> str:
    """Return the report as lines without control characters, because a terminal executes them."""
    return "".join(f"{printable(line)}\n" for line in _lines(report, details))


def render_policies(report: ScanReport) -> str:
    """Return the proposed policies as YAML documents. Empty if there are none."""
    return "---\n".join(
        f"# {symptom.id}: {symptom.title}\n{symptom.policy}"
        for symptom in found_symptoms(report)
        if symptom.policy
    )


def render_names(report: ScanReport, manifests: Sequence[str] = ()) -> str:
    """Return a line of arguments of `podsettle explain` for each workload that was found.

    It names the first pod if explain does not know the workload's kind, and with `manifests`, which
    seldom have workloads. A scan of one namespace leaves the namespace out, as kubectl does. A pod
    names its owner, which may be any text. A line has only names that objects can have, because
    shells get it.
    """
    files = [] if "-" in manifests else [f"--manifests={path}" for path in manifests]
    names = dict.fromkeys(
        (*_explained_name(finding, is_live=not manifests), finding.namespace)
        for symptom in found_symptoms(report)
        for finding in symptom.findings
    )
    return "".join(
        f"{shlex.join((f'{kind}/{name}', *(() if report.namespace else ('-n', where)), *files))}\n"
        for kind, name, where in names
        if OBJECT_NAME.fullmatch(name) and OBJECT_NAME.fullmatch(where)
    )


def _explained_name(finding: Finding, *, is_live: bool) -> tuple[str, str]:
    """Return the kind and name of a finding's workload, or of its first pod."""
    kind, _, name = finding.workload.partition("/")
    if is_live and _EXPLAINED.get(kind) == finding.group:
        return f"{kind.lower()}.{finding.group}", name
    return "pod", finding.pod


def _lines(report: ScanReport, details: bool) -> Iterator[str]:
    yield from _summary_lines(report)
    found = found_symptoms(report)
    if found:
        yield ""
        yield from _table(report, _MAX_DETAILED_ROWS if details else MAX_ROWS)
        yield ""
        yield "WHAT TO DO"
        if not report.nodes:
            yield from _wrapped("No node could be read, so whether it has a defect is unknown.", 2)
        for symptom in found:
            yield from _wrapped(f"{symptom.id}: {symptom.title}. {symptom.advice}".rstrip(), 2)
            commands = (each.advice for each in symptom.findings)
            unique = dict.fromkeys(each for each in commands if each.startswith("kubectl "))
            yield from (f"    {each}" for each in list(unique)[:_MAX_COMMANDS])
            if symptom.page:
                yield f"    page: {symptom.page}"
    if report.notes:
        yield ""
        yield "NOTES"
        yield from (line for note in report.notes for line in _wrapped(note, 2))
    yield ""
    yield from _node_lines(report, details)
    if report.needs:
        yield ""
        yield "POLICIES"
        answers = {"True": "still needed", "False": "no longer needed"}
        for need in report.needs:
            answer = answers.get(need.status, "perhaps still needed")
            yield from _wrapped(f"{need.policy}/{need.remedy}: {answer}: {need.message}", 2)
    others = [symptom for symptom in report.symptoms if not symptom.findings]
    if others:
        yield ""
        yield "NOT FOUND"
        for symptom in others:
            yield from _wrapped(f"{symptom.id}: {symptom.verdict.text}", 2)
            if details:
                yield from _wrapped(f"{symptom.title}. Page: {symptom.page}", 4)
    if details:
        yield from _detail_lines(report, found)
    elif found:
        yield ""
        yield f"The evidence: {report.command} -v"


def _summary_lines(report: ScanReport) -> Iterator[str]:
    """Yield at most _MAX_SUMMARY_LINES lines, if names are short and there are few steps."""
    summary = summary_of(report)
    defects = [line for each in summary.defects for line in _wrapped(each, 0)]
    unshown, others = ([], defects) if summary.symptoms else (defects, [])
    before = [*_wrapped(summary.scanned, 0), *unshown, summary.answer]
    after = [line for step in summary.steps for line in _wrapped(step, 0)]
    after += [f"  {summary.command}"] if summary.command else []
    after += _wrapped(summary.unknown, 0)
    room = max(_MAX_SUMMARY_LINES - len(before) - len(after), _MIN_SYMPTOM_LINES)
    rows = [line for each in summary.symptoms for line in _wrapped(each, 2)]
    if len(rows) > room:
        left = len(summary.symptoms) - (room - 1)
        rows = [cut(f"  {each}", _WIDTH) for each in summary.symptoms[: room - 1]]
        rows.append(f"  and {left} more; see the table")
        others = []  # The symptoms come first, and the table of nodes has these defects, too.
    yield from (*before, *rows, *others, *after)


def _table(report: ScanReport, most: int) -> Iterator[str]:
    """Yield a row for each workload or node with a symptom."""
    found = [(symptom, rows_of(symptom, most)) for symptom in found_symptoms(report)]
    first = max(len("SYMPTOM"), *(len(symptom.id) for symptom, _ in found))
    fixed = first + len("  COUNT  2026-11-20 10:15:03Z  ")
    longest = max(len(printable(row.name)) for _, rows in found for row in rows.rows)
    second = min(_WIDTH - fixed, max(longest, len("WORKLOAD OR NODE")))
    yield f"{'SYMPTOM':<{first}}  {'WORKLOAD OR NODE':<{second}}  COUNT  NEWEST"
    for symptom, rows in found:
        for row in rows.rows:
            newest = format_time(row.newest) if row.newest is not None else "–"
            name = cut(printable(row.name), second)
            yield f"{row.symptom:<{first}}  {name:<{second}}  {row.times:>5}  {newest}"
        if rows.hidden:
            yield f"{symptom.id:<{first}}  {'others':<{second}}  {rows.hidden:>5}"


def _node_lines(report: ScanReport, details: bool) -> Iterator[str]:
    if not report.nodes:
        yield "NODES"
        yield "  not known"
        return
    width = max(len("RUNTIME"), *(len(printable(group.runtime)) for group in report.nodes))
    kubelet = max(len("KUBELET"), *(len(printable(group.kubelet)) for group in report.nodes))
    yield f"NODES  {'RUNTIME':<{width}}  {'KUBELET':<{kubelet}}  DEFECTS"
    start = 7 + width + 2 + kubelet + 2
    for group in report.nodes:
        lines = _cells(_defects_of(group), _WIDTH - start)
        head = f"{group.count:>5}  {group.runtime:<{width}}  {group.kubelet:<{kubelet}}  "
        yield f"{head}{lines[0]}"
        yield from (" " * start + line for line in lines[1:])
        if details:
            yield from _wrapped(", ".join(group.names), 7)
    possible = [defect for defect in report.defects if defect.possible]
    if possible:
        yield "Possible, because it depends on configuration that no Node shows:"
        for defect in possible:
            yield from _wrapped(f"{defect.defect}: needs {defect.requires}", 2)


def _defects_of(group: NodeGroup) -> list[str]:
    """Return the defects of a group of nodes that do not depend on configuration."""
    found = []
    for each in group.defects:
        if each.status in _STATUSES:
            status = "" if each.status == DefectStatus.AFFECTED else f" ({each.status})"
            cure = f" (cured by {each.cured_by})" if each.cured_by else ""
            found.append(f"{each.defect}{status}{cure}")
    if found:
        return found
    has_possible = any(each.status == POSSIBLE for each in group.defects)
    return ["none certain" if has_possible else "none"]


def _cells(texts: list[str], width: int) -> list[str]:
    """Return texts as the lines of a cell."""
    lines = []
    for text in texts:
        lines += wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False)
    return lines


def _detail_lines(report: ScanReport, found: list[SymptomReport]) -> Iterator[str]:
    limited = [area for area in report.areas if area.looked is not Looked.LOOKED_AT]
    if limited:
        yield ""
        yield "LIMITS"
        for area in limited:
            yield from _wrapped(f"{area.looked.phrase}: {area.limit}", 2)
    if report.defects and report.nodes:
        yield ""
        yield "DEFECTS"
        for defect in report.defects:
            parts = [
                f"{count} {word}"
                for count, word in (
                    (defect.affected, "affected"),
                    (defect.possible, "possible"),
                    (defect.partly, "partly affected"),
                    (defect.unverified, "not affected, unverified"),
                )
                if count
            ]
            counts = f"{', '.join(parts) or '0'} of {defect.total} nodes"
            yield from _wrapped(f"{defect.defect}: {counts}: {defect.title}", 2)
    for symptom in found:
        yield ""
        yield from _wrapped(f"{symptom.id.upper()}: {symptom.verdict.text}", 0)
        for finding in symptom.findings[:_MAX_FINDINGS]:
            yield from _finding_lines(finding)
        left = symptom.findings[_MAX_FINDINGS:]
        hidden = sum(finding.count for finding in left) + symptom.unlisted
        if hidden:
            yield f"  and {hidden} more at other workloads; see -o json"
        if symptom.policy:
            yield "  The proposed policy:"
            yield from indent(symptom.policy, " " * 4).splitlines()


def _finding_lines(finding: Finding) -> Iterator[str]:
    times = f"{finding.count} times" if finding.count > 1 else "once"
    workload = f"{finding.namespace} {finding.workload}"
    yield from _wrapped(f"{finding.certainty}: {workload}: {times}{_period(finding)}", 2)
    yield from _wrapped(finding.sentence, 6)
    for evidence in finding.evidence:
        yield from _wrapped(f"- {_evidence(evidence)}", 6)
    if finding.advice:
        # A command stays on one line, so that it can be copied.
        is_command = finding.advice.startswith("kubectl ")
        line = f"> {finding.advice}"
        yield from [" " * 6 + line] if is_command else _wrapped(line, 6)


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


def _wrapped(text: str, spaces: int) -> list[str]:
    """Return the lines of a text, all with the same indentation."""
    prefix = " " * spaces
    return wrap(
        printable(" ".join(text.split())),
        _WIDTH,
        initial_indent=prefix,
        subsequent_indent=prefix + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
