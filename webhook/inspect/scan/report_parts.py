"""The parts of a report: the nodes with their defects, what policies need, and each symptom.

Findings are kept by workload and by node. So the memory does not grow with pods.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from webhook.core.cluster.nodes import Node
from webhook.core.cluster.remedy_need import Need
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import Defect, DefectStatus
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.still_needed import all_nodes, remedy_needs
from webhook.inspect.findings import MAX_LISTED, Certainty, Finding, verdict
from webhook.inspect.object_readers import Areas
from webhook.inspect.scan import model, unsettled
from webhook.inspect.scan.proposals import Proposal
from webhook.inspect.scan.symptoms import SYMPTOMS
from webhook.inspect.scan.symptoms.base import cure_of, page_of

MAX_GROUPS = 5_000
"""The maximum number of workloads with a finding, over all symptoms. The others are counted."""
_MAX_TIMES = 20_000
"""The maximum number of times of one symptom in the timeline. They take 160 KB."""
MAX_BINS = 48
"""The maximum number of parts of a timeline, because people look at them side by side."""
_DAY = 86_400
_BIN_SECONDS = (60, 300, 900, 3_600, 10_800, 21_600, _DAY, 7 * _DAY, 30 * _DAY)
_ORDER = list(Certainty)
_NO_CURE = Need("True", "", "no release that podsettle knows cures it")


def node_groups(nodes: Iterable[Node]) -> tuple[model.NodeGroup, ...]:
    """Return the nodes by runtime and kubelet. The largest group comes first."""
    by_software: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        by_software.setdefault(software_of(node), []).append(node)
    groups = [
        model.NodeGroup(
            runtime=runtime,
            kubelet=kubelet,
            count=len(group),
            names=tuple(sorted(node.name for node in group)),
            defects=tuple(
                model.NodeDefect(defect.id, status_on(group[0], defect), cure_of(group[0], defect))
                for defect in DEFECTS
            ),
        )
        for (runtime, kubelet), group in by_software.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-group.count, group.runtime, group.kubelet)))


def software_of(node: Node) -> tuple[str, str]:
    """Return the runtime and the kubelet of a node, for people."""
    runtime = str(node.runtime) if node.runtime.name else "no runtime reported"
    return f"{runtime} (Windows)" if node.is_windows else runtime, str(node.kubelet or "?")


def status_on(node: Node, defect: Defect) -> str:
    """Return whether a node has a defect: the value of a DefectStatus, or POSSIBLE."""
    status = node.status_for(defect)
    is_possible = defect.requires is not None and status is DefectStatus.AFFECTED
    return model.POSSIBLE if is_possible else status.value


def defect_nodes(
    groups: Iterable[model.NodeGroup], proposals: Mapping[str, Proposal]
) -> tuple[model.DefectNodes, ...]:
    """Return for each defect the numbers of nodes, and the policies that cure it in pods found."""
    in_force = {symptom: preview.in_force for symptom, (_, preview) in proposals.items()}
    counts = Counter[tuple[str, str]]()
    for group in groups:
        for each in group.defects:
            counts[each.defect, each.status] += group.count
    return tuple(
        model.DefectNodes(
            defect=defect.id,
            title=defect.title,
            affected=counts[defect.id, DefectStatus.AFFECTED],
            possible=counts[defect.id, model.POSSIBLE],
            partly=counts[defect.id, DefectStatus.PARTLY_AFFECTED],
            not_affected=counts[defect.id, DefectStatus.NOT_AFFECTED],
            unverified=counts[defect.id, DefectStatus.UNVERIFIED],
            remedies=defect.remedies,
            policies=tuple(each.text for each in in_force.get(defect.id, ())),
            page=page_of(defect),
            requires=defect.requires or "",
        )
        for defect in DEFECTS
    )


def policy_needs(view: Snapshot) -> tuple[model.PolicyNeed, ...]:
    """Return whether the nodes still need each remedy of each policy, and which nodes do."""
    nodes = all_nodes(view)
    return tuple(
        model.PolicyNeed(policy.metadata.name, remedy, need.status, need.message)
        for policy in view.policies.documents
        for remedy, found in remedy_needs(policy, nodes).items()
        for need in [found or _NO_CURE]
    )


@dataclass
class _Found:
    """What was found of one symptom."""

    unlisted: int = 0
    """The number of findings at workloads that are not listed."""
    times: array[int] = field(default_factory=lambda: array("q"))
    """The times at which the symptom was seen, in seconds since 1970."""
    by_workload: dict[tuple[str, str, Certainty], Finding] = field(default_factory=dict)
    by_node: dict[str, Finding] = field(default_factory=dict)


class Tally:
    """The findings of a scan so far."""

    def __init__(self, max_groups: int = MAX_GROUPS) -> None:
        self._free = {"workloads": max_groups, "nodes": max_groups}
        self.found: defaultdict[str, _Found] = defaultdict(_Found)

    def add(self, finding: Finding) -> None:
        """Add a finding about one pod."""
        found = self.found[finding.symptom]
        if finding.first_seen is not None and len(found.times) < _MAX_TIMES:
            found.times.append(int(finding.first_seen.timestamp()))
        key = (finding.namespace, finding.workload, finding.certainty)
        found.unlisted += not self._put("workloads", found.by_workload, key, finding)
        # A pod may name a node that is gone, and any number of pods may.
        if finding.node:
            self._put("nodes", found.by_node, finding.node, finding)

    def _put(self, kind: str, groups: dict[Any, Finding], key: object, finding: Finding) -> bool:
        """Add a finding to its group. Return False if there are too many groups of the kind."""
        if key in groups:
            groups[key] = _merge(groups[key], finding)
        elif self._free[kind]:
            self._free[kind] -= 1
            groups[key] = finding
        else:
            return False
        return True


def _merge(group: Finding, finding: Finding) -> Finding:
    """Return a group with one more finding. The evidence of the first pods is kept."""
    evidence = group.evidence
    if len(evidence) + len(finding.evidence) <= MAX_LISTED:
        evidence = (*evidence, *(each for each in finding.evidence if each not in evidence))
    return replace(
        group,
        count=group.count + finding.count,
        certainty=min(group.certainty, finding.certainty, key=_ORDER.index),
        evidence=evidence,
        first_seen=min(filter(None, (group.first_seen, finding.first_seen)), default=None),
        last_seen=max(filter(None, (group.last_seen, finding.last_seen)), default=None),
    )


def bin_length(tally: Tally) -> int:
    """Return the length of the parts of all timelines, in seconds."""
    times = [time for symptom in SYMPTOMS for time in tally.found[symptom.id].times]
    span = max(times) - min(times) if times else 0
    # One part more than the quotient, because the first part begins before the first time.
    fitting = (length for length in _BIN_SECONDS if span // length + 2 <= MAX_BINS)
    return next(fitting, (span // (MAX_BINS - 2) // _DAY + 1) * _DAY)


def symptom_reports(
    tally: Tally,
    areas: Areas,
    bin_seconds: int,
    proposals: Mapping[str, Proposal],
    nodes: Iterable[Node] = (),
) -> tuple[model.SymptomReport, ...]:
    """Return a report for each symptom, and one for the pods that are not settled.

    The most certain and most frequent findings come first, and the nodes with the most findings.
    `proposals` are the policies for symptoms, by the symptom's id.
    """
    software = {node.name: software_of(node) for node in nodes}
    reports = []
    for symptom in (*SYMPTOMS, unsettled.SYMPTOM):
        found = tally.found[symptom.id]
        policy, preview = proposals.get(symptom.id) or ("", None)
        findings = sorted(
            found.by_workload.values(),
            key=lambda f: (_ORDER.index(f.certainty), -f.count, f.namespace, f.workload),
        )
        count = sum(each.count for each in findings) + found.unlisted
        limits = [areas[name] for name in symptom.areas]
        times = Counter(time - time % bin_seconds for time in found.times)
        # The catalogue has no advice on a fault of configuration, but its first finding has.
        advice = findings[0].advice if findings else ""
        if symptom is unsettled.SYMPTOM:
            limits += [areas[unsettled.DECISIONS]] if unsettled.DECISIONS in areas else []
            times, advice = Counter(), unsettled.advice_for(findings)
        elif symptom.defect is not None and findings:
            sentences = [symptom.defect.advice, *(preview.sentences if preview else ())]
            if preview and preview.node_configuration:
                sentences.append(f"Configure the nodes first: `{preview.node_configuration}`.")
            advice = " ".join(sentences)
        reports.append(model.SymptomReport(
            id=symptom.id,
            title=symptom.title,
            defect=symptom.defect.id if symptom.defect is not None else None,
            verdict=verdict(count, limits),
            findings=tuple(findings),
            unlisted=found.unlisted,
            advice=advice,
            policy=policy,
            page=symptom.page,
            timeline=tuple(
                model.Bin(datetime.fromtimestamp(t, UTC), n) for t, n in sorted(times.items())
            ),
            pods=preview.pods if preview is not None else count,
            preview=preview,
            nodes=tuple(
                model.SymptomNode(
                    each.node, *software.get(each.node, ("", "")), each.count, each.certainty,
                    each.last_seen,
                )
                for each in sorted(found.by_node.values(), key=lambda f: (-f.count, f.node))
            ),
        ))  # fmt: skip
    return tuple(reports)
