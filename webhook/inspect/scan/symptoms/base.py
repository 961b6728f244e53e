"""What all symptoms share: the facts of a cluster, and the form of a symptom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from webhook.core.cluster.nodes import Node
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import Defect, Sign
from webhook.inspect.findings import (
    MAX_EVIDENCE,
    Certainty,
    Evidence,
    Finding,
    FoundContainer,
)
from webhook.inspect.objects import Event, LivePod, PodKey
from webhook.inspect.scan.advice import upgrade_advice
from webhook.inspect.scan.certificates import FirstCertificate
from webhook.inspect.scan.workload import workload_of

_CLOCK_SKEW = timedelta(minutes=1)
"""The time by which the clock of a node may be behind that of the API server."""


@dataclass(frozen=True, slots=True)
class ScanFacts:
    """What symptoms read of a cluster, apart from the pod itself."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    """The nodes by name. A pod's node may be gone, or nodes may not have been readable."""
    runtime_classes: Mapping[str, RuntimeClassInfo] = field(default_factory=dict)
    first_certificates: Mapping[str, FirstCertificate] = field(default_factory=dict)
    """By node: when its first serving certificate was approved."""
    events: Mapping[PodKey, Sequence[Event]] = field(default_factory=dict)
    """By pod: the events whose reasons and texts symptoms name."""


Judge: TypeAlias = Callable[[LivePod, ScanFacts], Iterator[Finding]]


class Symptom(NamedTuple):
    """A symptom that a scan looks for."""

    id: str
    title: str
    defect: Defect | None
    """The defect in the catalogue. None for a fault of configuration."""
    areas: tuple[str, ...]
    """The resources without which the absence of the symptom means nothing."""
    judge: Judge
    signs: tuple[Sign, ...] = ()
    """The events that the judge reads, the surest first."""
    against: tuple[Sign, ...] = ()
    """The events that name another cause, which the judge reads too."""
    page: str = ""
    """The address of the page about the symptom. Empty if the defect has one."""


def defect_named(name: str) -> Defect:
    """Return a defect of the catalogue. Raises StopIteration for an unknown name."""
    return next(defect for defect in DEFECTS if defect.id == name)


class NodeEvidence(NamedTuple):
    """What is known of a pod's node with respect to a defect."""

    evidence: Evidence
    known: bool = True
    """False if the node is gone or was not read. A finding is then less certain."""
    advice: str = ""


def node_evidence(pod: LivePod, facts: ScanFacts, defect: Defect) -> NodeEvidence | None:
    """Return the evidence that the pod's node has a defect, or None if it does not have it."""
    name = pod.spec.node_name
    if not name:
        return None
    node = facts.nodes.get(name)
    if node is None:
        gone = "gone, or not read, so its releases are unknown"
        return NodeEvidence(Evidence(f"node {name}", "status.nodeInfo", gone), known=False)
    status = node.status_for(defect)
    if not status.needs_remedy:
        return None
    field_name = "kubeletVersion" if defect.component == "kubelet" else "containerRuntimeVersion"
    software = f"{node.software_of(defect)} ({status})"
    evidence = Evidence(f"node {name}", f"status.nodeInfo.{field_name}", software)
    return NodeEvidence(evidence, advice=upgrade_advice(defect, node))


def make_finding(
    symptom: str,
    pod: LivePod,
    certainty: Certainty,
    sentence: str,
    evidence: Sequence[Evidence],
    seen: datetime | None,
    *,
    defect: Defect | None = None,
    node: NodeEvidence | None = None,
    advice: str = "",
    container: FoundContainer | None = None,
) -> Finding:
    """Return a finding about one pod.

    `node` adds its evidence and its advice, and lowers the certainty if the node is unknown.
    `seen` is dropped if it cannot be, because a tenant writes the times of events.
    """
    if seen is not None and not is_plausible(pod, seen):
        seen = None
    if node is not None:
        evidence = (*evidence, node.evidence)
        certainty = certainty if node.known else certainty.lowered
        advice = advice or node.advice
    workload = workload_of(pod.metadata)
    return Finding(
        symptom=symptom,
        defect=defect.id if defect else None,
        namespace=pod.metadata.namespace,
        workload=workload.title,
        count=1,
        certainty=certainty,
        sentence=sentence,
        evidence=tuple(evidence)[:MAX_EVIDENCE],
        first_seen=seen,
        last_seen=seen,
        advice=advice,
        container=container,
        node=pod.spec.node_name or "",
        pod=pod.metadata.name,
        group=workload.group,
    )


def matches(sign: Sign, event: Event) -> bool:
    """Return whether an event has the reason and all texts of a sign."""
    return event.reason == sign.reason and sign.is_in(event.message)


def first_event(pod: LivePod, facts: ScanFacts, sign: Sign) -> Event | None:
    """Return the first event of a pod that matches a sign, or None."""
    events = facts.events.get(pod.key, ())
    return next((event for event in events if matches(sign, event)), None)


def names_other_cause(pod: LivePod, facts: ScanFacts, against: Iterable[Sign]) -> bool:
    """Return whether an event of a pod names a cause that is not the defect."""
    return any(first_event(pod, facts, sign) is not None for sign in against)


def event_evidence(event: Event) -> Evidence:
    """Return an event as evidence."""
    reference = event.involved_object
    title = f"event {event.reason} of pod {reference.namespace}/{reference.name}"
    return Evidence(title, "message", event.message, event.time)


def is_plausible(pod: LivePod, time: datetime) -> bool:
    """Return whether something can have happened to the pod at a time.

    The kubelet reports 1970 if it does not know a time. Pods that were restored from a backup have
    the times of earlier pods.
    """
    created = pod.metadata.creation_timestamp
    return time >= created - _CLOCK_SKEW if created is not None else time.timestamp() > 0


def persistent_volumes(pod: LivePod) -> set[str]:
    """Return the names of the pod's volumes that are claims or generic ephemeral volumes."""
    return {
        volume.name
        for volume in pod.spec.volumes or ()
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None
    }
