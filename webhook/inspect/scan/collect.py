"""The scan: one pass over the objects of a cluster, and the report about them.

Pods are decoded, judged and dropped one at a time. What is kept grows with nodes and workloads.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from webhook.core.defects.catalogue import DEFECTS
from webhook.core.export.native_policies import API_VERSIONS
from webhook.inspect.cluster_flags import kubectl, podsettle
from webhook.inspect.findings import Area, Looked
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.objects import Event, LivePod, PodKey
from webhook.inspect.paged import Areas
from webhook.inspect.scan import resources
from webhook.inspect.scan.certificates import SIGNER, first_certificates
from webhook.inspect.scan.found_pods import FoundPods
from webhook.inspect.scan.grouped_findings import Tally
from webhook.inspect.scan.kinds_looked_at import view_areas
from webhook.inspect.scan.model import ScanReport
from webhook.inspect.scan.native_proposals import export_proposals
from webhook.inspect.scan.nodes import defect_nodes, node_groups, page_of, policy_needs
from webhook.inspect.scan.proposals import Proposal, propose
from webhook.inspect.scan.resources import ObjectReader
from webhook.inspect.scan.symptom_reports import bin_length, symptom_reports
from webhook.inspect.scan.symptoms import SYMPTOMS, slow_umount
from webhook.inspect.scan.symptoms.base import ScanFacts, matches
from webhook.inspect.scan.templates import NoTemplates, TemplateReader
from webhook.inspect.scan.unsettled import UnsettledPods

_MAX_EVENTS_BYTES = 40 * 1024 * 1024
"""The maximum memory for events. An event usually takes 2 KB."""
_EVENT_BYTES = 1_200
"""The memory of an event without its message: the structs, and their short texts."""
_CLOCK_SKEW = timedelta(days=1)
"""The time by which the clock that an event has can be ahead."""
_MAX_EVENT_LOOKUPS = 200
"""The maximum number of pods whose events are looked up, because each takes a request."""
_MAX_POD_EVENTS = 500
"""The maximum number of events of one of these pods."""


async def scan(
    reader: ObjectReader,
    cluster: KnownCluster,
    namespace: str | None = None,
    max_events_bytes: int = _MAX_EVENTS_BYTES,
    templates: TemplateReader | None = None,
    arguments: Sequence[str] = (),
) -> ScanReport:
    """Look for every symptom, and return the report. `namespace` None means all namespaces.

    `templates` are those of workloads. Without them, the next pods are those that run, without what
    the cluster added. `arguments` are those of this scan, for the commands that it prints.
    """
    areas = Areas()
    for area in view_areas(cluster, namespace):
        areas.record(area)
    node_created: dict[str, datetime] = {}
    async for node in reader.objects(resources.NODE_METADATA):
        if node.metadata.creation_timestamp is not None:
            node_created[node.metadata.name] = node.metadata.creation_timestamp
    # A request of another signer may have large annotations, and there may be many.
    requests = [
        request
        async for request in reader.objects(resources.SIGNING_REQUESTS)
        if request.spec.signer_name == SIGNER
    ]
    facts = ScanFacts(
        nodes={node.name: node for node in cluster.view.nodes.all},
        runtime_classes=cluster.view.runtime_classes,
        first_certificates=first_certificates(requests, node_created, reader.now),
        events=await _read_events(reader, namespace, max_events_bytes),
    )
    del requests
    tally = Tally()
    found = {
        symptom.id: FoundPods(cluster.view, cluster.view.policies)
        for symptom in SYMPTOMS
        if symptom.defect is not None
    }
    pods = await _judge_pods(reader, cluster, areas, facts, tally, found, namespace)
    proposals = await _proposals(cluster, found, templates or NoTemplates())
    for area in reader.areas.all:
        areas.record(area)
    policies = cluster.view.policies.documents
    seconds = bin_length(tally)
    report = ScanReport(
        cluster=cluster.title,
        namespace=namespace,
        scanned_at=datetime.now(UTC).replace(microsecond=0),
        server_version=str(cluster.view.server_version or ""),
        pods=pods,
        areas=areas.all,
        nodes=node_groups(cluster.view.nodes.all),
        defects=defect_nodes(cluster.view.nodes.all, _curing(proposals)),
        needs=policy_needs(policies, cluster.view),
        symptoms=symptom_reports(tally, areas, seconds, proposals, cluster.view.nodes.all),
        bin_seconds=seconds,
        notes=tuple(_notes(cluster)),
        command=cluster.flags.command(podsettle("scan", *arguments)),
        # `kubectl apply` would replace a policy of the same name that the scan has not seen.
        apply_command=cluster.flags.command(
            podsettle("scan", *arguments, "-o", "policy") + kubectl("create", "-f", "-")
        ),
    )
    if not _needs_native_policies(cluster):
        return report
    native = export_proposals(report, cluster, action="Audit", api_version="v1")
    command = podsettle("scan", *arguments, "-o", "policy", "--native")
    command += kubectl("apply", "-f", "-")
    return (
        replace(report, native=True, apply_command=cluster.flags.command(command))
        if native.export.policies
        else report
    )


def _needs_native_policies(cluster: KnownCluster) -> bool:
    """Return whether an API server has no SettlePolicies, and can evaluate native policies."""
    server = cluster.view.server_version
    return (
        server is not None
        and server >= API_VERSIONS["v1"]
        and any(each.resource == "settlepolicies" and not each.is_denied for each in cluster.unread)
    )


async def _proposals(
    cluster: KnownCluster, found: Mapping[str, FoundPods], templates: TemplateReader
) -> dict[str, Proposal]:
    """Return the policies for the symptoms that were found, by the symptom's id."""
    workloads = (kind.workload for pods in found.values() for kind in pods.kinds)
    next_pods = await templates.next_pods(workloads)
    proposals: dict[str, Proposal] = {}
    for symptom in SYMPTOMS:
        if symptom.defect is not None and symptom.id in found:
            proposal = propose(symptom.defect, found[symptom.id], cluster, next_pods)
            if proposal is not None:
                proposals[symptom.id] = proposal
    return proposals


def _curing(proposals: Mapping[str, Proposal]) -> dict[str, tuple[str, ...]]:
    """Return the policies that cure a defect in pods that were found, by the defect's id."""
    return {
        symptom.defect.id: tuple(each.text for each in proposals[symptom.id].preview.in_force)
        for symptom in SYMPTOMS
        if symptom.defect is not None and symptom.id in proposals
    }


def _notes(cluster: KnownCluster) -> Iterator[str]:
    """Yield the problems of policies and manifests, what the scan assumes, and cannot see."""
    yield from map(str, cluster.problems)
    if cluster.why_image_is_assumed and len(cluster.view.policies):
        why = cluster.why_image_is_assumed
        yield f"the scan assumes that podsettle has the image of a helper, because {why}"
    for defect in DEFECTS:
        if defect.invisible is not None:
            page = f"; {page_of(defect)} says how to look" if defect.page else ""
            yield f"the scan cannot see {defect.id}: {defect.invisible}{page}"


async def _read_events(
    reader: ObjectReader, namespace: str | None, max_bytes: int
) -> dict[PodKey, tuple[Event, ...]]:
    """Return the events that symptoms read, by pod. Of equal ones keep the first."""
    signs = [sign for symptom in SYMPTOMS for sign in (*symptom.signs, *symptom.against)]
    events: dict[PodKey, tuple[Event, ...]] = {}
    size = 0
    for reason in sorted({sign.reason for sign in signs}):
        selector = f"reason={reason}"
        async for event in _events(reader, namespace, selector):
            matching = [sign for sign in signs if matches(sign, event)]
            key = event.involved_object.pod_key
            if not matching or event.reason != reason or key is None:
                continue
            kept = events.get(key, ())
            if any(all(matches(sign, each) for sign in matching) for each in kept):
                continue
            size += _size(event)
            if size > max_bytes:
                why = f"those with texts of symptoms take more than {max_bytes:,} bytes"
                reader.areas.record(Area(resources.EVENTS.name, Looked.PARTLY, why))
                return events
            events[key] = (*kept, event)
    return events


async def _events(
    reader: ObjectReader, namespace: str | None, selector: str
) -> AsyncIterator[Event]:
    """Yield the events of a list, without those of the future: a tenant writes their times."""
    latest = reader.now + _CLOCK_SKEW
    async for event in reader.objects(resources.EVENTS, namespace, selector):
        if event.time is None or event.time <= latest:
            yield event


def _size(event: Event) -> int:
    """Return about how much memory an event takes. A single emoji multiplies that of its text."""
    named = event.involved_object
    texts = (event.message, event.reason, named.uid, named.field_path, named.name)
    return _EVENT_BYTES + sum(map(sys.getsizeof, texts))


async def _judge_pods(
    reader: ObjectReader,
    cluster: KnownCluster,
    areas: Areas,
    facts: ScanFacts,
    tally: Tally,
    found: Mapping[str, FoundPods],
    namespace: str | None,
) -> int:
    """Judge every pod, add the findings to the tally, and return the number of pods."""
    unread = {area.name for area in areas.all if area.looked is not Looked.LOOKED_AT}
    unsettled_pods = UnsettledPods(
        cluster.view,
        cluster.view.policies,
        cluster.settings,
        cluster.created,
        cluster.calls,
        doubtful=bool(unread & {"nodes", "runtimeclasses"}),
        assumes_image=bool(cluster.why_image_is_assumed),
        flags=cluster.flags,
    )
    count = lookups = 0
    async for pod in reader.objects(resources.PODS, namespace):
        count += 1
        known = facts
        if lookups < _MAX_EVENT_LOOKUPS and slow_umount.needs_events(pod, facts):
            # The pod is not kept for later, because it may take 1.5 MiB.
            lookups += 1
            known = await _with_events(reader, facts, pod)
        for symptom in SYMPTOMS:
            judged = known if symptom is slow_umount.SYMPTOM else facts
            findings = list(symptom.judge(pod, judged))
            for finding in findings:
                tally.add(finding)
            if findings and symptom.id in found:
                found[symptom.id].add(pod, findings)
        for finding in unsettled_pods.judge(pod):
            tally.add(finding)
    if unsettled_pods.area is not None:
        areas.record(unsettled_pods.area)
    return count


async def _with_events(reader: ObjectReader, facts: ScanFacts, pod: LivePod) -> ScanFacts:
    """Return facts with the events about the containers of one pod."""
    selector = f"involvedObject.uid={pod.metadata.uid}"
    events: list[Event] = []
    async for event in _events(reader, pod.metadata.namespace, selector):
        if event.involved_object.pod_key == pod.key and event.involved_object.field_path:
            events.append(event)
        if len(events) >= _MAX_POD_EVENTS:
            break
    return dataclasses.replace(facts, events={pod.key: events})
