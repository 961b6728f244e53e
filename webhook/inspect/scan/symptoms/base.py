"""What all symptoms share: the facts of a cluster, and the form of a symptom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from webhook.core.cluster.nodes import Node, runs_on_windows
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import Defect, Sign
from webhook.core.pod import DECODE_ERRORS, Volume
from webhook.inspect.findings import MAX_LISTED, Certainty, Evidence, Finding, FoundContainer
from webhook.inspect.objects import ContainerStatus, Event, LivePod, PodKey

_CLOCK_SKEW = timedelta(minutes=1)
"""The time by which the clock of a node may be behind that of the API server."""


class FirstCertificate(NamedTuple):
    """The request for the first serving certificate of a node."""

    request: str
    """The name of the CertificateSigningRequest that was approved first, or else of the first."""
    approved_at: datetime | None
    """None while no request of the node is approved."""
    node_created: datetime
    is_certain: bool = True
    """False if an earlier approval may have been deleted."""


@dataclass(frozen=True, slots=True)
class ScanFacts:
    """What symptoms read of a cluster, apart from the pod itself."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    """The nodes by name. A pod's node may be gone, or nodes may not have been readable."""
    runtime_classes: Mapping[str, RuntimeClassInfo] = field(default_factory=dict)
    first_certificates: Mapping[str, FirstCertificate] = field(default_factory=dict)
    """By node: when its first serving certificate was approved."""
    events: Mapping[PodKey, Sequence[Event]] = field(default_factory=dict)
    """By pod: the events that symptoms name, or of a pod in doubt all events."""


class Symptom(NamedTuple):
    """A symptom that a scan looks for."""

    id: str
    """The identifier of the defect, or that of a fault of configuration."""
    title: str
    page: str
    """The address of the page about the symptom."""
    areas: tuple[str, ...]
    """The resources without which the absence of the symptom means nothing."""
    find: Callable[[Case], Iterator[Finding]]
    """Yields a finding for each time that a pod has the symptom."""
    defect: Defect | None = None
    """The defect in the catalogue. None for a fault of configuration."""
    signs: tuple[Sign, ...] = ()
    """The events that `find` reads, the surest first."""
    against: tuple[Sign, ...] = ()
    """The events that name another cause, which `find` reads too."""


class Case(NamedTuple):
    """A pod that is judged, with what is known of its cluster."""

    pod: LivePod
    facts: ScanFacts
    symptom: Symptom
    """The symptom that is looked for."""

    @property
    def events(self) -> Sequence[Event]:
        """The events of the pod."""
        return self.facts.events.get(self.pod.key, ())

    def event(self, *signs: Sign) -> Event | None:
        """Return the first event of the pod that matches one of the signs, or None."""
        return next((each for sign in signs for each in self.events if matches(sign, each)), None)

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
        """The names of the pod's persistent volumes, without claims that are read-only."""
        return {each.name for each in self.mounted_volumes if each.is_persistent}

    @property
    def mounted_volumes(self) -> list[Volume]:
        """The volumes that containers mount. Empty for a malformed pod of a dump."""
        try:
            names = set(self.pod.spec.mounted_names())
        except DECODE_ERRORS:
            return []
        return [each for each in self.pod.spec.volumes or () if each.name in names]

    @property
    def first_start(self) -> datetime | None:
        """The earliest start of a container that the status still has."""
        states = (state for _, each in self.statuses for state in (each.state, each.last_state))
        starts = (state.started_at for state in states if state is not None)
        return min((each for each in starts if each and self.is_plausible(each)), default=None)

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

    def on_node(self, finding: Finding) -> Iterator[Finding]:
        """Yield a finding with the evidence that the pod's node has the defect, if it has it.

        If the node is gone or was not read, the finding is less certain. No runtime of Windows has
        such a defect.
        """
        name, defect = self.pod.spec.node_name, self.symptom.defect
        if not name or defect is None or runs_on_windows(self.pod.spec):
            return
        node, certainty, advice = self.facts.nodes.get(name), finding.certainty, ""
        if node is None:
            field, value = "", "gone, or not read, so its releases are unknown"
            is_certain = certainty is Certainty.CERTAIN
            certainty = Certainty.LIKELY if is_certain else Certainty.POSSIBLE
        elif not (status := node.status_for(defect)).needs_remedy:
            return
        else:
            is_kubelet = defect.component == "kubelet"
            field = ".kubeletVersion" if is_kubelet else ".containerRuntimeVersion"
            value = f"{node.software_of(defect)} ({status})"
            component, _, release = cure_of(node, defect).partition(" ")
            advice = f"Upgrade {component} on node {name} to {release} or later." if release else ""
        evidence = (*finding.evidence, Evidence(f"node {name}", f"status.nodeInfo{field}", value))
        yield replace(finding, certainty=certainty, evidence=evidence[:MAX_LISTED], advice=advice)

    def finding(
        self,
        certainty: Certainty,
        sentence: str,
        evidence: Iterable[Evidence],
        seen: datetime | None = None,
        *,
        advice: str = "",
        container: FoundContainer | None = None,
    ) -> Finding:
        """Return a finding about the pod.

        `seen` is dropped if it cannot be, because a tenant writes the times of events.
        """
        if seen is not None and not self.is_plausible(seen):
            seen = None
        metadata, workload = self.pod.metadata, self.pod.metadata.workload
        return Finding(
            symptom=self.symptom.id,
            defect=self.symptom.defect.id if self.symptom.defect is not None else None,
            namespace=metadata.namespace,
            workload=workload.title,
            count=1,
            certainty=certainty,
            sentence=sentence,
            evidence=tuple(evidence)[:MAX_LISTED],
            first_seen=seen,
            last_seen=seen,
            advice=advice,
            container=container,
            node=self.pod.spec.node_name or "",
            pod=metadata.name,
            group=workload.group,
        )


def symptom_of(
    defect_id: str,
    areas: tuple[str, ...],
    find: Callable[[Case], Iterator[Finding]],
    against: tuple[Sign, ...] = (),
) -> Symptom:
    """Return the symptom of a defect in the catalogue, which names the events and the page."""
    defect = next(each for each in DEFECTS if each.id == defect_id)
    title, page = defect.title, page_of(defect)
    return Symptom(defect_id, title, page, areas, find, defect, defect.signs, against)


def cure_of(node: Node, defect: Defect) -> str:
    """Return the release that cures a node, such as `CRI-O 1.33.13`. Empty if there is none."""
    release = defect.cure_for(node.runtime, node.kubelet)
    component = "kubelet" if defect.component == "kubelet" else node.runtime.name
    return f"{component} {release}" if release is not None else ""


def page_of(defect: Defect) -> str:
    """Return the address of the page about a defect."""
    return f"docs/{defect.page}"


def matches(sign: Sign, event: Event) -> bool:
    """Return whether an event has the reason and all texts of a sign."""
    return event.reason == sign.reason and sign.is_in(event.message)


def event_evidence(event: Event) -> Evidence:
    """Return an event as evidence."""
    reference = event.involved_object
    title = f"event {event.reason} of pod {reference.namespace}/{reference.name}"
    return Evidence(title, "message", event.message, event.time)
