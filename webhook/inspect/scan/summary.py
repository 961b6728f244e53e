"""The summary of a scan: what was found, how certain it is, on which nodes, and what to do first.

The text and the HTML page show the same sentences, and the same tables after them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

from webhook.core.cluster.remedy_need import NEED_PHRASES
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import DefectStatus
from webhook.core.printable import count_of, cut
from webhook.inspect.findings import Answer, Certainty, Finding, format_time
from webhook.inspect.scan import model, unsettled
from webhook.inspect.scan.model import ScanReport, SymptomReport

_CERTAINTIES = list(Certainty)
_UNKNOWN = {Answer.NOT_LOOKED_AT: "not read", Answer.UNKNOWN: "partly read"}
"""Why a symptom is not known. The details say which objects were not read, and why."""


class Summary(NamedTuple):
    """The sentences of a summary, in their order. Without symptoms, the defects come first."""

    scanned: str
    answer: str
    """How many symptoms were found."""
    symptoms: tuple[str, ...]
    """A line for each symptom that was found, the most certain first."""
    defects: tuple[str, ...]
    """A sentence for each defect that nodes certainly have and no pod shows yet."""
    steps: tuple[str, ...]
    """What to do first, in sentences. The last one ends with a colon if there is a command."""
    command: str
    """The command of the last step. Empty if there is none."""
    unknown: str
    """Which symptoms could not be looked for everywhere, which defects no scan can see, and why."""


Row: TypeAlias = tuple[str, ...]


class Table(NamedTuple):
    """A table, or a list if it has one column."""

    title: str
    heads: Row
    """The names of the columns. `n:` stands in front of the name of a column of numbers."""
    rows: tuple[Row, ...]


def summary_of(report: ScanReport) -> Summary:
    """Return the summary of a report."""
    where = f" in namespace {report.namespace}" if report.namespace else ""
    nodes = count_of(sum(group.count for group in report.nodes), "node")
    found = found_symptoms(report)
    shown = {each.defect for each in found}
    unshown = [each for each in report.defects if each.is_certain and each.defect not in shown]
    unread = [
        (", ".join(each.id for each in report.symptoms if each.verdict.answer is answer), why)
        for answer, why in _UNKNOWN.items()
    ]
    nothing = f"No symptom was found{' in what was looked at' if any(dict(unread)) else ''}."
    invisible = ", ".join(defect.id for defect in DEFECTS if defect.invisible is not None)
    unknown = [f"{ids} ({why})" for ids, why in (*unread, (invisible, "in no object")) if ids]
    no_nodes = "No node could be read, so whether it has a defect is unknown. "
    proposed = [
        each for each in found if each.policy and each.preview and not each.preview.is_audited
    ]
    return Summary(
        scanned=f"Scan of {report.cluster}: {nodes}, {count_of(report.pods, 'pod')}{where}",
        answer=f"{count_of(len(found), 'symptom')} found:" if found else nothing,
        symptoms=tuple(map(symptom_line, found)),
        defects=tuple(
            f"A defect is on {each.affected + each.partly} of {count_of(each.total, 'node')}, "
            f"without a symptom yet: {each.title} ({each.defect})."
            for each in unshown
        ),
        # The upgrade for another defect is no step against a symptom that was found.
        steps=(*_first_steps(report, found or unshown), *_policy_steps(found, proposed)),
        command=report.apply_command if proposed else "",
        unknown=("" if report.nodes else no_nodes) + f"Not known: {'; '.join(unknown)}.",
    )


def found_symptoms(report: ScanReport) -> list[SymptomReport]:
    """Return the symptoms that were found. The most certain and most frequent ones come first.

    Pods that are not settled come last, because a policy in force already cares for the next ones.
    """

    def order(symptom: SymptomReport) -> tuple[bool, int, int]:
        best = min(_CERTAINTIES.index(each.certainty) for each in symptom.findings)
        return symptom.id == unsettled.ID, best, -symptom.pods

    return sorted((each for each in report.symptoms if each.findings), key=order)


def symptom_line(symptom: SymptomReport) -> str:
    """Return how often a symptom was found, how certain that is, and on which nodes."""
    counts = Counter[Certainty]()
    for finding in symptom.findings:
        counts[finding.certainty] += finding.count
    named = [each for each in _CERTAINTIES if counts[each]]
    sure = named[0] if len(named) == 1 else ", ".join(f"{counts[each]} {each}" for each in named)
    where = f", on {_nodes_phrase(symptom)}" if symptom.id != unsettled.ID and symptom.nodes else ""
    return f"{symptom.id}: {count_of(symptom.pods, 'pod')}, {sure}{where}"


def _nodes_phrase(symptom: SymptomReport) -> str:
    """Return the nodes with a symptom by their runtimes."""
    if len(symptom.nodes) == 1:
        (node,) = symptom.nodes
        return f"node {node.title}"
    runtimes = Counter(node.runtime or "an unknown runtime" for node in symptom.nodes)
    (first, most), *others = runtimes.most_common()
    text = f"{count_of(most, 'node')} with {first}"
    left = sum(count for _, count in others)
    return f"{text} and {count_of(left, 'other node')}" if left else text


def _first_steps(
    report: ScanReport, causes: Sequence[SymptomReport | model.DefectNodes]
) -> Iterator[str]:
    """Yield the upgrade for the first cause that a release cures, or else other advice.

    The causes are the symptoms found, or else the defects that no pod shows. Nodes are configured
    where no policy has an effect yet.
    """
    found = [each for each in causes if isinstance(each, SymptomReport)]
    upgrades = (
        _upgrade(report, each.defect, each.nodes if isinstance(each, SymptomReport) else ())
        for each in causes
    )
    steps = next(filter(None, upgrades), [])
    for symptom in found:
        preview = symptom.preview
        if preview and not preview.changes and preview.node_configuration:
            steps.append(f"Configure the nodes for {symptom.id}: `{preview.node_configuration}`.")
    if steps:
        steps[0] = f"First, {steps[0][0].lower()}{steps[0][1:]}"
    elif found and not any(symptom.policy for symptom in found):
        steps.append(found[0].advice)
    yield from filter(None, steps)


def _upgrade(
    report: ScanReport, defect: str | None, nodes: tuple[model.SymptomNode, ...]
) -> list[str]:
    """Return the upgrade that cures a defect in sentences, of which `nodes` with it come first."""
    seen = Counter[tuple[str, str]]()
    for node in nodes:
        seen[node.runtime, node.kubelet] += node.count
    curable = [
        (seen[group.runtime, group.kubelet], group.count, group.runtime, each.cured_by)
        for group in report.nodes
        for each in group.defects
        if each.defect == defect and each.cured_by
    ]
    if not curable:
        return []
    *_, runtime, release = max(curable, key=lambda each: each[:2])
    counts = Counter[bool]()
    for _, count, *software in curable:
        counts[software == [runtime, release]] += count
    first, left = count_of(counts[True], "node"), count_of(counts[False], "other node")
    sentence = f"Upgrade {runtime} on {first} to {release} or later ({defect})."
    return [sentence, *([f"Then upgrade {left} with the same defect."] if counts[False] else [])]


def _policy_steps(found: list[SymptomReport], proposed: list[SymptomReport]) -> Iterator[str]:
    """Yield which policies have the remedies already or only report, and which are proposed."""
    for symptom in found:
        preview = symptom.preview
        if preview and (preview.in_force or (preview.changes and preview.is_audited)):
            yield f"{symptom.id}: {preview.sentences[0]}"
    if len(proposed) == 1 and (preview := proposed[0].preview) is not None:
        yield f"A policy {preview.phrase}, once you delete `action: Audit`:"
    elif proposed:
        yield f"{len(proposed)} policies are proposed. With `action: Audit`, they only report:"


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


def _defects_of(group: model.NodeGroup) -> str:
    """Return the defects of a group of nodes that do not depend on configuration."""
    found = []
    for each in group.defects:
        if each.status not in (model.POSSIBLE, DefectStatus.NOT_AFFECTED):
            status = "" if each.status == DefectStatus.AFFECTED else f" ({each.status})"
            cure = f" (cured by {each.cured_by})" if each.cured_by else ""
            found.append(f"{each.defect}{status}{cure}")
    return ", ".join(found) or "none"


def place_rows(symptom: SymptomReport, most: int) -> Iterator[Row]:
    """Yield the workloads with a symptom, or the nodes if `most` rows do not suffice.

    The last row counts those that have no row.
    """
    places: list[tuple[str, Finding | model.SymptomNode]] = [
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
        value = cut(" ".join(each.value.split()), unsettled.MAX_SHOWN_CHARACTERS)
        yield f"{each.object}: {each.field}: {value}"
    if finding.advice:
        yield finding.advice


def times(count: int) -> str:
    """Return how often something was found."""
    return "once" if count == 1 else f"{count} times"


def time_or_dash(time: datetime | None) -> str:
    """Return a time for people. It is not known of every finding."""
    return format_time(time) if time is not None else "–"
