"""Findings by symptom and workload. The memory grows with workloads, not with pods."""

from __future__ import annotations

from array import array
from datetime import datetime

from msgspec.structs import replace

from webhook.inspect.findings import MAX_EVIDENCE, Certainty, Finding
from webhook.inspect.scan.model import SymptomNode

MAX_GROUPS = 5_000
"""The maximum number of workloads with a finding, over all symptoms. The others are counted."""
_MAX_TIMES = 20_000
"""The maximum number of times of one symptom in the timeline. They take 160 KB."""

_ORDER = list(Certainty)


class Tally:
    """The findings of a scan so far."""

    def __init__(self, max_groups: int = MAX_GROUPS) -> None:
        self._max_groups = max_groups
        self._groups: dict[tuple[str, str, str, Certainty], Finding] = {}
        self._counts: dict[str, int] = {}
        self._unlisted: dict[str, int] = {}
        self._times: dict[str, array[int]] = {}
        self._nodes: dict[tuple[str, str], SymptomNode] = {}

    def add(self, finding: Finding) -> None:
        """Add a finding about one pod."""
        symptom = finding.symptom
        self._counts[symptom] = self._counts.get(symptom, 0) + 1
        if finding.first_seen is not None:
            times = self._times.setdefault(symptom, array("q"))
            if len(times) < _MAX_TIMES:
                times.append(int(finding.first_seen.timestamp()))
        if finding.node:
            self._add_node(finding)
        key = (symptom, finding.namespace, finding.workload, finding.certainty)
        group = self._groups.get(key)
        if group is not None:
            self._groups[key] = _merge(group, finding)
        elif len(self._groups) < self._max_groups:
            self._groups[key] = finding
        else:
            self._unlisted[symptom] = self._unlisted.get(symptom, 0) + 1

    def _add_node(self, finding: Finding) -> None:
        """Add a finding to those of its node. A pod may name a node that is gone."""
        key = (finding.symptom, finding.node)
        node = self._nodes.get(key)
        if node is None and len(self._nodes) < self._max_groups:
            node = SymptomNode(finding.node, "", "", 0, finding.certainty, None)
        if node is not None:
            self._nodes[key] = replace(
                node,
                count=node.count + finding.count,
                certainty=min(node.certainty, finding.certainty, key=_ORDER.index),
                last_seen=max(_known(node.last_seen, finding.last_seen), default=None),
            )

    def nodes(self, symptom: str) -> tuple[SymptomNode, ...]:
        """Return the nodes with a symptom, without their software. The worst one comes first."""
        found = [node for (name, _), node in self._nodes.items() if name == symptom]
        return tuple(sorted(found, key=lambda node: (-node.count, node.name)))

    def count(self, symptom: str) -> int:
        """Return how many times a symptom was found."""
        return self._counts.get(symptom, 0)

    def unlisted(self, symptom: str) -> int:
        """Return how many times a symptom was found at workloads that are not listed."""
        return self._unlisted.get(symptom, 0)

    def findings(self, symptom: str) -> tuple[Finding, ...]:
        """Return the findings of a symptom. The most certain and most frequent ones come first."""
        found = [finding for finding in self._groups.values() if finding.symptom == symptom]
        found.sort(key=lambda f: (_ORDER.index(f.certainty), -f.count, f.namespace, f.workload))
        return tuple(found)

    def times(self, symptom: str) -> array[int]:
        """Return the times at which a symptom was seen, in seconds since 1970."""
        return self._times.get(symptom, array("q"))


def _merge(group: Finding, finding: Finding) -> Finding:
    """Return a group with one more finding. The evidence of the first pods is kept."""
    evidence = group.evidence
    if len(evidence) + len(finding.evidence) <= MAX_EVIDENCE:
        evidence = (*evidence, *(each for each in finding.evidence if each not in evidence))
    return replace(
        group,
        count=group.count + finding.count,
        evidence=evidence,
        first_seen=min(_known(group.first_seen, finding.first_seen), default=None),
        last_seen=max(_known(group.last_seen, finding.last_seen), default=None),
    )


def _known(*times: datetime | None) -> list[datetime]:
    return [time for time in times if time is not None]
