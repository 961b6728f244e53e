"""What all symptoms share: the facts of a cluster, and the form of a symptom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from webhook.core.cluster.nodes import Node
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import Defect, Sign
from webhook.inspect.findings import MAX_EVIDENCE, Certainty, Evidence, Finding, FoundContainer
from webhook.inspect.objects import ContainerStatus, Event, LivePod, PodKey
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


class Case(NamedTuple):
    """A pod that is judged, with what is known of its cluster."""

    pod: LivePod
    facts: ScanFacts
    defect: Defect | None
    symptom: str
    """The id of the symptom that is looked for."""

    @property
    def events(self) -> Sequence[Event]:
        """The events of the pod."""
        return self.facts.events.get(self.pod.key, ())

    def event(self, *signs: Sign) -> Event | None:
        """Return the first event of the pod that matches one of the signs, or None."""
        found = (each for sign in signs for each in self.events if matches(sign, each))
        return next(found, None)

    @property
    def statuses(self) -> Iterator[tuple[str, ContainerStatus]]:
        """The path and the status of each container of the pod. Init containers come first."""
        status = self.pod.status
        for index, each in enumerate(status.init_container_statuses or ()):
            yield f"status.initContainerStatuses[{index}]", each
        for index, each in enumerate(status.container_statuses or ()):
            yield f"status.containerStatuses[{index}]", each

    @property
    def claims(self) -> set[str]:
        """The names of the pod's volumes that are claims or generic ephemeral volumes."""
        return {
            volume.name
            for volume in self.pod.spec.volumes or ()
            if volume.persistent_volume_claim is not None or volume.ephemeral is not None
        }

    def is_plausible(self, time: datetime) -> bool:
        """Return whether something can have happened to the pod at a time.

        The kubelet reports 1970 if it does not know a time. Pods that were restored from a backup
        have the times of earlier pods.
        """
        created = self.pod.metadata.creation_timestamp
        return time >= created - _CLOCK_SKEW if created is not None else time.timestamp() > 0

    def evidence(self, field: str, value: str, time: datetime | None = None) -> Evidence:
        """Return the value of a field of the pod as evidence."""
        return Evidence(self.pod.title, field, value, time)

    @property
    def node(self) -> NodeEvidence | None:
        """The evidence that the pod's node has the defect. None if the node does not have it."""
        name, defect = self.pod.spec.node_name, self.defect
        if not name or defect is None:
            return None
        node = self.facts.nodes.get(name)
        if node is None:
            gone = "gone, or not read, so its releases are unknown"
            return NodeEvidence(Evidence(f"node {name}", "status.nodeInfo", gone), known=False)
        status = node.status_for(defect)
        if not status.needs_remedy:
            return None
        of_kubelet = defect.component == "kubelet"
        field = "kubeletVersion" if of_kubelet else "containerRuntimeVersion"
        software = f"{node.software_of(defect)} ({status})"
        evidence = Evidence(f"node {name}", f"status.nodeInfo.{field}", software)
        release = defect.cure_for(node.runtime, node.kubelet)
        component = "kubelet" if of_kubelet else node.runtime.name
        advice = f"Upgrade {component} on node {name} to {release} or later."
        return NodeEvidence(evidence, advice=advice if release is not None else "")

    def finding(
        self,
        certainty: Certainty,
        sentence: str,
        evidence: Iterable[Evidence],
        seen: datetime | None = None,
        *,
        node: NodeEvidence | None = None,
        advice: str = "",
        container: FoundContainer | None = None,
    ) -> Finding:
        """Return a finding about the pod.

        `node` adds its evidence and its advice, and lowers the certainty if the node is unknown.
        `seen` is dropped if it cannot be, because a tenant writes the times of events.
        """
        if seen is not None and not self.is_plausible(seen):
            seen = None
        if node is not None:
            evidence = (*evidence, node.evidence)
            advice = advice or node.advice
            if not node.known:
                is_certain = certainty is Certainty.CERTAIN
                certainty = Certainty.LIKELY if is_certain else Certainty.POSSIBLE
        metadata, workload = self.pod.metadata, workload_of(self.pod.metadata)
        return Finding(
            symptom=self.symptom,
            defect=self.defect.id if self.defect is not None else None,
            namespace=metadata.namespace,
            workload=workload.title,
            count=1,
            certainty=certainty,
            sentence=sentence,
            evidence=tuple(evidence)[:MAX_EVIDENCE],
            first_seen=seen,
            last_seen=seen,
            advice=advice,
            container=container,
            node=self.pod.spec.node_name or "",
            pod=metadata.name,
            group=workload.group,
        )


class NodeEvidence(NamedTuple):
    """What is known of a pod's node with respect to a defect."""

    evidence: Evidence
    known: bool = True
    """False if the node is gone or was not read. A finding is then less certain."""
    advice: str = ""


class Symptom(NamedTuple):
    """A symptom that a scan looks for."""

    id: str
    """The identifier of the defect, or that of a fault of configuration."""
    title: str
    areas: tuple[str, ...]
    """The resources without which the absence of the symptom means nothing."""
    find: Callable[[Case], Iterator[Finding]]
    defect: Defect | None = None
    """The defect in the catalogue. None for a fault of configuration."""
    signs: tuple[Sign, ...] = ()
    """The events that `find` reads, the surest first."""
    against: tuple[Sign, ...] = ()
    """The events that name another cause, which `find` reads too."""
    page: str = ""
    """The address of the page about the symptom. Empty if the defect has one."""

    def judge(self, pod: LivePod, facts: ScanFacts) -> Iterator[Finding]:
        """Yield a finding for each time that a pod has the symptom."""
        return self.find(Case(pod, facts, self.defect, self.id))


def symptom_of(
    defect: Defect,
    areas: tuple[str, ...],
    find: Callable[[Case], Iterator[Finding]],
    against: tuple[Sign, ...] = (),
) -> Symptom:
    """Return the symptom of a defect. `find` reads the events that the catalogue names."""
    return Symptom(defect.id, defect.title, areas, find, defect, defect.signs, against)


def defect_named(name: str) -> Defect:
    """Return a defect of the catalogue. Raises StopIteration for an unknown name."""
    return next(defect for defect in DEFECTS if defect.id == name)


def matches(sign: Sign, event: Event) -> bool:
    """Return whether an event has the reason and all texts of a sign."""
    return event.reason == sign.reason and sign.is_in(event.message)


def event_evidence(event: Event) -> Evidence:
    """Return an event as evidence."""
    reference = event.involved_object
    title = f"event {event.reason} of pod {reference.namespace}/{reference.name}"
    return Evidence(title, "message", event.message, event.time)
