"""The scan: one pass over the objects of a cluster, and the report about them.

Pods are decoded, judged and dropped one at a time. What is kept grows with nodes and workloads.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import yaml

from webhook.core.defects.catalogue import DEFECTS
from webhook.core.export.native_policies import API_VERSIONS, export
from webhook.core.policy.model import parse_policy
from webhook.inspect.cluster_flags import Command, kubectl, podsettle
from webhook.inspect.findings import Area, Finding, Looked
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.objects import Event, LivePod, PodKey
from webhook.inspect.paged import Areas
from webhook.inspect.scan import resources
from webhook.inspect.scan.certificates import SIGNER, first_certificates
from webhook.inspect.scan.dump import ObjectReader
from webhook.inspect.scan.found_pods import FoundPods
from webhook.inspect.scan.kinds_looked_at import view_areas
from webhook.inspect.scan.model import ScanReport
from webhook.inspect.scan.nodes import defect_nodes, node_groups, page_of, policy_needs
from webhook.inspect.scan.proposals import Proposal, propose
from webhook.inspect.scan.symptom_reports import Tally, bin_length, symptom_reports
from webhook.inspect.scan.symptoms import SYMPTOMS, judge_pod, slow_umount
from webhook.inspect.scan.symptoms.base import ScanFacts, matches
from webhook.inspect.scan.templates import TemplateReader
from webhook.inspect.scan.unsettled import UnsettledPods

_MAX_EVENTS_BYTES = 40 * 1024 * 1024
"""The maximum memory for events. An event usually takes 2 KB."""
_EVENT_BYTES = 1_200
"""The memory of an event without its message: the structs, and their short texts."""
_CLOCK_SKEW = timedelta(days=1)
"""The time by which the clock that an event has can be ahead."""
_ASKING = slow_umount.SYMPTOM.id
"""The symptom about which the events of a pod's containers decide. A cluster has many of them."""
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
    only: AsyncIterable[LivePod] | None = None,
    on_finding: Callable[[Finding], None] = lambda _finding: None,
) -> ScanReport:
    """Look for every symptom, and return the report. `namespace` None means all namespaces.

    An explanation is about some pods `only`, and takes each finding before they are added up.

    `templates` are those of workloads. Without them, the next pods are those that run, without what
    the cluster added. `arguments` are those of this scan, for the commands that it prints.
    """
    areas = Areas()
    for area in view_areas(cluster, namespace):
        areas.record(area)
    facts = await _read_facts(reader, cluster, namespace, max_events_bytes)
    unread = {area.name for area in areas.all if area.looked is not Looked.LOOKED_AT}
    unsettled = UnsettledPods(cluster, doubtful=bool(unread & {"nodes", "runtimeclasses"}))
    tally, pods, lookups = Tally(), 0, 0
    found = {each.id: (each.defect, FoundPods(cluster)) for each in SYMPTOMS if each.defect}
    async for pod in only or reader.objects(resources.PODS, namespace):
        pods += 1
        judged = judge_pod(pod, facts)
        if lookups < _MAX_EVENT_LOOKUPS and any(each.symptom == _ASKING for each in judged):
            # The pod is not kept for later, because it may take 1.5 MiB.
            lookups += 1
            judged = judge_pod(pod, await _with_pod_events(reader, facts, pod))
        by_symptom: dict[str, list[Finding]] = {}
        for finding in (*judged, *unsettled.judge(pod)):
            on_finding(finding)
            tally.add(finding)
            by_symptom.setdefault(finding.symptom, []).append(finding)
        for symptom, findings in by_symptom.items():
            if symptom in found:
                found[symptom][1].add(pod, findings)
    if unsettled.area is not None:
        areas.record(unsettled.area)
    next_pods = {}
    if templates is not None:
        kinds = (kind for _, each in found.values() for kind in each.kinds.values())
        next_pods = await templates.next_pods(kind.workload for kind in kinds)
    proposals = {
        symptom: proposal
        for symptom, (defect, each) in found.items()
        if (proposal := propose(defect, each, cluster, next_pods)) is not None
    }
    for area in reader.areas.all:
        areas.record(area)
    curing = {
        defect: tuple(each.text for each in proposal.preview.in_force)
        for defect, proposal in proposals.items()
    }
    seconds = bin_length(tally)
    return ScanReport(
        cluster=cluster.title,
        namespace=namespace,
        scanned_at=datetime.now(UTC).replace(microsecond=0),
        server_version=str(cluster.view.server_version or ""),
        pods=pods,
        areas=areas.all,
        nodes=node_groups(cluster.view.nodes.all),
        defects=defect_nodes(cluster.view.nodes.all, curing),
        needs=policy_needs(cluster.view.policies.documents, cluster.view),
        symptoms=symptom_reports(tally, areas, seconds, proposals, cluster.view.nodes.all),
        bin_seconds=seconds,
        notes=tuple(_notes(cluster)),
        command=cluster.flags.command(podsettle("scan", *arguments)),
        apply_command=_apply_command(
            cluster, podsettle("scan", *arguments, "-o", "policy"), proposals.values()
        ),
    )


def _apply_command(cluster: KnownCluster, printing: Command, proposals: Iterable[Proposal]) -> str:
    """Return the command that creates the proposed policies, which `printing` prints.

    An API server without SettlePolicies gets native policies, if there are some that do the same,
    and it can evaluate them.
    """
    server = cluster.view.server_version
    if (
        server is not None
        and server >= API_VERSIONS["v1"]
        and any(each.resource == "settlepolicies" and not each.is_denied for each in cluster.unread)
    ):
        made = [parse_policy(yaml.safe_load(each.policy)) for each in proposals if each.policy]
        view = cluster.with_policies(made).view
        names = [policy.metadata.name for policy in made]
        if export(view.policies, view, cluster.settings, names=names).policies:
            native = (("podsettle", "export", "-"),)
            return cluster.flags.command(printing + native + kubectl("apply", "-f", "-"))
    # `kubectl apply` would replace a policy of the same name that the scan has not seen.
    return cluster.flags.command(printing + kubectl("create", "-f", "-"))


async def _read_facts(
    reader: ObjectReader,
    cluster: KnownCluster,
    namespace: str | None,
    max_events_bytes: int = _MAX_EVENTS_BYTES,
) -> ScanFacts:
    """Return what symptoms read of a cluster, apart from the pods."""
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
    return ScanFacts(
        nodes={node.name: node for node in cluster.view.nodes.all},
        runtime_classes=cluster.view.runtime_classes,
        first_certificates=first_certificates(requests, node_created, reader.now),
        events=await _read_events(reader, namespace, max_events_bytes),
    )


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
    reasons = sorted({sign.reason for sign in signs})
    events: dict[PodKey, tuple[Event, ...]] = {}
    size = 0
    async for event in _events(reader, namespace, [f"reason={each}" for each in reasons]):
        key = event.involved_object.pod_key
        if key is None or event.reason not in reasons:
            continue
        matching = [sign for sign in signs if matches(sign, event)]
        kept = events.get(key, ())
        if any(all(matches(sign, each) for sign in matching) for each in kept) or not matching:
            continue
        size += _size(event)
        if size > max_bytes:
            why = f"those with texts of symptoms take more than {max_bytes:,} bytes"
            reader.areas.record(Area(resources.EVENTS.name, Looked.PARTLY, why))
            break
        events[key] = (*kept, event)
    return events


async def _events(
    reader: ObjectReader, namespace: str | None, field_selectors: Sequence[str]
) -> AsyncIterator[Event]:
    """Yield the events of lists, without those of the future: a tenant writes their times."""
    latest = reader.now + _CLOCK_SKEW
    async for event in reader.objects(resources.EVENTS, namespace, field_selectors):
        if event.time is None or event.time <= latest:
            yield event


def _size(event: Event) -> int:
    """Return about how much memory an event takes. A single emoji multiplies that of its text."""
    named = event.involved_object
    texts = (event.message, event.reason, named.uid, named.field_path, named.name)
    return _EVENT_BYTES + sum(map(sys.getsizeof, texts))


async def _with_pod_events(reader: ObjectReader, facts: ScanFacts, pod: LivePod) -> ScanFacts:
    """Return facts for one pod, with the events about its containers."""
    selectors = [f"{resources.ABOUT}{pod.metadata.uid}"]
    events: list[Event] = []
    async for event in _events(reader, pod.metadata.namespace, selectors):
        if event.involved_object.pod_key == pod.key and event.involved_object.field_path:
            events.append(event)
        if len(events) >= _MAX_POD_EVENTS:
            break
    known = facts.events.get(pod.key, ())
    return dataclasses.replace(facts, events={pod.key: [*known, *events]})
