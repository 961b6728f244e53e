"""The summary of a scan: what was found, how certain it is, on which nodes, and what to do first.

The text and the HTML page show the same sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from webhook.core.defects.catalogue import DEFECTS
from webhook.inspect.findings import Answer, Certainty
from webhook.inspect.scan import unsettled
from webhook.inspect.scan.model import (
    DefectNodes,
    ScanReport,
    SymptomNode,
    SymptomReport,
    count_of,
)

_CERTAINTIES = list(Certainty)
_UNLOOKED = (Answer.UNKNOWN, Answer.NOT_LOOKED_AT)


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
    """Which symptoms could not be looked for everywhere, and which defects no scan can see."""


def summary_of(report: ScanReport) -> Summary:
    """Return the summary of a report."""
    where = f" in namespace {report.namespace}" if report.namespace else ""
    nodes = count_of(sum(group.count for group in report.nodes), "node")
    found, unshown = found_symptoms(report), _unshown_defects(report)
    unknown = [each.id for each in report.symptoms if each.verdict.answer in _UNLOOKED]
    nothing = f"No symptom was found{' in what was looked at' if unknown else ''}."
    unknown += [defect.id for defect in DEFECTS if defect.invisible is not None]
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
        unknown=("" if report.nodes else no_nodes) + f"Not known: {', '.join(unknown)}.",
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


def _unshown_defects(report: ScanReport) -> list[DefectNodes]:
    """Return the defects that nodes have without any configuration, and no pod shows."""
    shown = {symptom.defect for symptom in report.symptoms if symptom.findings}
    return [each for each in report.defects if each.is_certain and each.defect not in shown]


def _first_steps(
    report: ScanReport, causes: Sequence[SymptomReport | DefectNodes]
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


def _upgrade(report: ScanReport, defect: str | None, nodes: tuple[SymptomNode, ...]) -> list[str]:
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
        yield (
            f"{len(proposed)} policies are proposed. Each only reports, until you delete "
            "`action: Audit`:"
        )
