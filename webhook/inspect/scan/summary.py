"""The summary of a scan: what was found, how certain it is, on which nodes, and what to do first.

The text and the HTML page show the same sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import yaml

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
    """The sentences of a summary."""

    scanned: str
    """What was scanned."""
    defects: tuple[str, ...]
    """A sentence for each defect that nodes certainly have and no pod shows yet."""
    answer: str
    """How many symptoms were found."""
    symptoms: tuple[str, ...]
    """A line for each symptom that was found, the most certain first."""
    steps: tuple[str, ...]
    """What to do first, in sentences. The last one ends with a colon if there is a command."""
    command: str
    """The command of the last step. Empty if there is none."""
    unknown: str
    """Which symptoms could not be looked for everywhere, and which defects no scan can see."""


def summary_of(report: ScanReport) -> Summary:
    """Return the summary of a report."""
    where = f" in namespace {report.namespace}" if report.namespace else ""
    nodes = sum(group.count for group in report.nodes)
    pods = count_of(report.pods, "pod")
    scanned = f"Scan of {report.cluster}: {count_of(nodes, 'node')}, {pods}{where}"
    found = found_symptoms(report)
    unlooked = [each for each in report.symptoms if each.verdict.answer in _UNLOOKED]
    nothing = f"No symptom was found{' in what was looked at' if unlooked else ''}."
    answer = f"{count_of(len(found), 'symptom')} found:" if found else nothing
    steps = list(_steps(report, found))
    steps += _existing_policies(found)
    proposed = [symptom for symptom in found if symptom.policy and not _is_audited(symptom)]
    if proposed:
        steps.append(_policy_step(proposed, native=report.native))
    return Summary(
        scanned,
        tuple(
            f"A defect is on {each.affected + each.partly} of {count_of(each.total, 'node')}, "
            f"without a symptom yet: {each.title} ({each.defect})."
            for each in _unshown_defects(report)
        ),
        answer,
        tuple(map(symptom_line, found)),
        tuple(steps),
        report.apply_command if proposed else "",
        _unknown(report),
    )


def found_symptoms(report: ScanReport) -> list[SymptomReport]:
    """Return the symptoms that were found. The most certain and most frequent ones come first.

    Pods that are not settled come last, because a policy in force already cares for the next ones.
    """
    return sorted(
        (symptom for symptom in report.symptoms if symptom.findings),
        key=lambda each: (
            each.id == unsettled.ID,
            _CERTAINTIES.index(best_certainty(each)),
            -each.pods,
        ),
    )


def best_certainty(symptom: SymptomReport) -> Certainty:
    """Return the certainty of the most certain finding."""
    return min((each.certainty for each in symptom.findings), key=_CERTAINTIES.index)


def symptom_line(symptom: SymptomReport) -> str:
    """Return how often a symptom was found, how certain that is, and on which nodes."""
    counts = Counter[Certainty]()
    for finding in symptom.findings:
        counts[finding.certainty] += finding.count
    named = [each for each in _CERTAINTIES if counts[each]]
    sure = (
        str(named[0]) if len(named) == 1 else ", ".join(f"{counts[each]} {each}" for each in named)
    )
    where = f", on {nodes_phrase(symptom)}" if symptom.id != unsettled.ID and symptom.nodes else ""
    return f"{symptom.id}: {count_of(symptom.pods, 'pod')}, {sure}{where}"


def nodes_phrase(symptom: SymptomReport) -> str:
    """Return the nodes with a symptom by their runtimes."""
    if len(symptom.nodes) == 1:
        (node,) = symptom.nodes
        return f"node {node.name}{f' ({node.runtime})' if node.runtime else ''}"
    runtimes = Counter(node.runtime or "an unknown runtime" for node in symptom.nodes)
    (first, most), *others = runtimes.most_common()
    text = f"{count_of(most, 'node')} with {first}"
    left = sum(count for _, count in others)
    return f"{text} and {count_of(left, 'other node')}" if left else text


def _unshown_defects(report: ScanReport) -> list[DefectNodes]:
    """Return the defects that nodes have without any configuration, and no pod shows."""
    shown = {symptom.defect for symptom in report.symptoms if symptom.findings}
    return [
        each
        for each in report.defects
        if each.affected + each.partly and not each.requires and each.defect not in shown
    ]


def _steps(report: ScanReport, found: list[SymptomReport]) -> Iterator[str]:
    """Yield the upgrade for the first symptom that a release cures, or else other advice.

    The nodes with the symptom come first. The defects that no pod shows come last.
    """
    defects: list[tuple[str | None, tuple[SymptomNode, ...]]] = [
        (symptom.defect, symptom.nodes) for symptom in found
    ]
    defects += [(each.defect, ()) for each in _unshown_defects(report)]
    for name, nodes in defects:
        seen = Counter[tuple[str, str]]()
        for node in nodes:
            seen[node.runtime, node.kubelet] += node.count
        upgrades, pods = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for group in report.nodes:
            for defect in group.defects:
                if defect.defect == name and defect.cured_by:
                    upgrades[group.runtime, defect.cured_by] += group.count
                    pods[group.runtime, defect.cured_by] += seen[group.runtime, group.kubelet]
        if upgrades:
            first = max(upgrades, key=lambda each: (pods[each], upgrades[each]))
            (runtime, cure), count = first, upgrades.pop(first)
            yield f"Upgrade {runtime} on {count_of(count, 'node')} to {cure} or later."
            if left := upgrades.total():
                yield f"Then upgrade {count_of(left, 'other node')} with the same defect."
            return
    if found and not any(symptom.policy for symptom in found) and found[0].advice:
        yield found[0].advice


def _existing_policies(found: list[SymptomReport]) -> Iterator[str]:
    """Yield which policies have the remedies already, and which of them only report."""
    in_force = [
        f"{policy.text} for {symptom.id}"
        for symptom in found
        if symptom.preview is not None
        for policy in symptom.preview.in_force[:1]
    ]
    if in_force:
        yield f"A remedy is in force already: policy {', policy '.join(in_force)}."
    audited = [f"{_policy_name(each)} for {each.id}" for each in found if _is_audited(each)]
    if audited:
        subject = "It only reports" if len(audited) == 1 else "Each only reports"
        names = ", policy ".join(audited)
        yield (
            f"In the cluster already: policy {names}. {subject}, until you delete `action: Audit` "
            "there."
        )


def _is_audited(symptom: SymptomReport) -> bool:
    """Return whether the proposed policy is in the cluster already, with `action: Audit`."""
    return bool(symptom.policy) and symptom.preview is not None and symptom.preview.is_audited


def _policy_name(symptom: SymptomReport) -> str:
    """Return the name of the proposed policy."""
    return str(yaml.safe_load(symptom.policy)["metadata"]["name"])


def _policy_step(proposed: list[SymptomReport], *, native: bool) -> str:
    """Return what the proposed policies do, when, and who can create them."""
    condition = "add `--mutate` to the command" if native else "delete `action: Audit`"
    phrases = [each.preview.phrase for each in proposed if each.preview is not None]
    if len(phrases) == 1:
        return (
            f"A policy {phrases[0]}, once you {condition}. A cluster administrator can create it:"
        )
    return (
        f"{len(phrases)} policies are proposed. Each only reports, until you {condition}. A "
        "cluster administrator can create them:"
    )


def _unknown(report: ScanReport) -> str:
    unknown = [each.id for each in report.symptoms if each.verdict.answer in _UNLOOKED]
    unknown += [defect.id for defect in DEFECTS if defect.invisible is not None]
    if not unknown:
        return ""
    return f"Not known: {', '.join(unknown)}."
