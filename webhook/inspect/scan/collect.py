"""The scan: one pass over the objects of a cluster, and the report about them.

Pods are decoded, judged and dropped one at a time. What is kept grows with nodes and workloads.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import yaml

from webhook.cluster.rights import Right, Unread
from webhook.core.constants import GROUP, KIND
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.export.native_policies import API_VERSIONS, export
from webhook.core.policy.model import parse_policy
from webhook.inspect import object_readers
from webhook.inspect.cluster_flags import Command, kubectl, podsettle
from webhook.inspect.findings import Area, Certainty, Finding, Looked
from webhook.inspect.installation import CONFIGURATIONS_RIGHT
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.object_readers import Areas, DumpReader, ObjectReader
from webhook.inspect.objects import Event, LivePod, PodKey
from webhook.inspect.scan import report_parts
from webhook.inspect.scan.found_pods import FoundPods, read_templates
from webhook.inspect.scan.model import ScanReport
from webhook.inspect.scan.proposals import Proposal, propose
from webhook.inspect.scan.symptoms import SYMPTOMS, judge_pod, kubelet_certificate, missing_handler
from webhook.inspect.scan.symptoms.base import ScanFacts, matches, page_of
from webhook.inspect.scan.symptoms.kubelet_certificate import SIGNER, first_certificates
from webhook.inspect.scan.unsettled import UnsettledPods

MAX_EVENTS_BYTES = 40 * 1024 * 1024
"""The maximum memory for events. An event usually takes 2 KB."""
_EVENT_BYTES = 1_200
"""The memory of an event without its message: the structs, and their short texts."""
_CLOCK_SKEW = timedelta(days=1)
"""The time by which the clock that an event has can be ahead."""
_MAX_EVENT_LOOKUPS = 200
"""The maximum number of pods with each symptom whose events are asked for by a request each."""
_OF_NO_EVENTS = {kubelet_certificate.SYMPTOM.id, missing_handler.SYMPTOM.id}
"""The symptoms about which no further events decide."""
_MAX_POD_EVENTS = 500
"""The maximum number of events of one of these pods."""


async def scan(
    reader: ObjectReader,
    cluster: KnownCluster,
    namespace: str | None = None,
    arguments: Sequence[str] = (),
    only: AsyncIterable[LivePod] | None = None,
    on_finding: Callable[[Finding], None] = lambda _finding: None,
) -> ScanReport:
    """Look for every symptom, and return the report. `namespace` None means all namespaces.

    An explanation is about some pods `only`, and takes each finding before they are added up.

    `arguments` are those of this scan, for the commands that it prints.
    """
    in_view = list(_view_areas(reader, cluster, namespace))
    facts = await _read_facts(reader, cluster, namespace)
    unread = {area.name for area in in_view if area.looked is not Looked.LOOKED_AT}
    unsettled = UnsettledPods(cluster, doubtful=bool(unread & {"nodes", "runtimeclasses"}))
    tally, pods, lookups = report_parts.Tally(), 0, Counter[str]()
    limit = sys.maxsize if isinstance(reader, DumpReader) else _MAX_EVENT_LOOKUPS
    found = {each.id: FoundPods(cluster, each.defect) for each in SYMPTOMS if each.defect}
    async for pod in only or reader.objects(object_readers.PODS, namespace):
        pods += 1
        judged = judge_pod(pod, facts)
        doubtful = (each for each in judged if each.certainty is not Certainty.CERTAIN)
        in_doubt = {each.symptom for each in doubtful} - _OF_NO_EVENTS
        if any(lookups[each] < limit for each in in_doubt):
            # The pod is not kept for later, because it may take 1.5 MiB.
            lookups.update(in_doubt)
            judged = judge_pod(pod, await _with_pod_events(reader, facts, pod))
        for finding in (*judged, *unsettled.judge(pod)):
            on_finding(finding)
            tally.add(finding)
        for symptom in found.keys() & {each.symptom for each in judged}:
            found[symptom].add(pod, [each for each in judged if each.symptom == symptom])
    await read_templates(reader, (kind for each in found.values() for kind in each.kinds.values()))
    proposals = {
        symptom: proposal
        for symptom, each in found.items()
        if (proposal := propose(each, cluster)) is not None
    }
    areas = Areas()
    for area in (*in_view, *unsettled.areas, *reader.areas.values()):
        areas.record(area)
    scanning, seconds = podsettle("scan", *arguments), report_parts.bin_length(tally)
    nodes = cluster.view.nodes.all
    groups = report_parts.node_groups(nodes)
    return ScanReport(
        cluster=cluster.title,
        namespace=namespace,
        scanned_at=datetime.now(UTC).replace(microsecond=0),
        server_version=str(cluster.view.server_version or ""),
        pods=pods,
        areas=tuple(areas.values()),
        nodes=groups,
        defects=report_parts.defect_nodes(groups, proposals),
        needs=report_parts.policy_needs(cluster.view),
        symptoms=report_parts.symptom_reports(tally, areas, seconds, proposals, nodes),
        bin_seconds=seconds,
        notes=tuple(_notes(cluster)),
        command=cluster.flags.command(scanning),
        apply_command=_apply_command(cluster, scanning, proposals.values()),
    )


def _view_areas(
    reader: ObjectReader, cluster: KnownCluster, namespace: str | None
) -> Iterator[Area]:
    """Yield the area of each kind in the view, and that of the webhook configurations.

    `namespace` is the only one that is scanned, or None for all.
    """
    view, unread = cluster.view, {each.resource: Area.of(each) for each in cluster.unread}
    # The scan of one namespace needs only this namespace, which the view then has.
    if not cluster.lists_namespaces and namespace is None:
        only = f"only {', '.join(sorted(view.namespaces)) or 'none'}"
        right = str(Right("list", "", "namespaces"))
        unread.setdefault("namespaces", Area("namespaces", Looked.PARTLY, only, right))
    policies = [each.metadata.name for each in view.policies.documents]
    for resource, group, kind, names in (
        ("nodes", "", "Node", [each.name for each in view.nodes.all]),
        ("runtimeclasses", "node.k8s.io", "RuntimeClass", view.runtime_classes),
        ("namespaces", "", "Namespace", view.namespaces),
        ("settlepolicies", GROUP, KIND, policies),
    ):
        area = Area(resource, Looked.LOOKED_AT)
        if isinstance(reader, DumpReader) and not cluster.is_live:
            area = reader.view_area(resource, group, kind, names)
        yield unread.get(resource, area)
    if cluster.calls is not None:
        name = CONFIGURATIONS_RIGHT.resource
        read = Area(name, Looked.LOOKED_AT)
        yield read if cluster.calls.readable else Area.of(Unread(name, CONFIGURATIONS_RIGHT))


def _apply_command(cluster: KnownCluster, scanning: Command, proposals: Iterable[Proposal]) -> str:
    """Return the command that creates the policies that the command of a scan proposes.

    An API server without SettlePolicies gets native policies, if there are some that do the same,
    and it can evaluate them.
    """
    server, printing = cluster.view.server_version, ((*scanning[0], "-o", "policy"),)
    if (
        server is not None
        and server >= API_VERSIONS["v1"]
        and any(each.resource == "settlepolicies" and not each.is_denied for each in cluster.unread)
    ):
        made = [parse_policy(yaml.safe_load(policy)) for policy, _ in proposals if policy]
        view = cluster.with_policies(made).view
        names = [policy.metadata.name for policy in made]
        if export(view, cluster.settings.own_namespace, names=names).policies:
            native = podsettle("export", "-") + kubectl("apply", "-f", "-")
            return cluster.flags.command(printing + native)
    # `kubectl apply` would replace a policy of the same name that the scan has not seen.
    return cluster.flags.command(printing + kubectl("create", "-f", "-"))


async def _read_facts(
    reader: ObjectReader, cluster: KnownCluster, namespace: str | None
) -> ScanFacts:
    """Return what symptoms read of a cluster, apart from the pods."""
    node_created = {
        node.metadata.name: created
        async for node in reader.objects(object_readers.NODE_METADATA)
        if (created := node.metadata.creation_timestamp) is not None
    }
    # A request of another signer may have large annotations, and there may be many.
    requests = [
        request
        async for request in reader.objects(object_readers.SIGNING_REQUESTS)
        if request.spec.signer_name == SIGNER
    ]
    return ScanFacts(
        nodes={node.name: node for node in cluster.view.nodes.all},
        runtime_classes=cluster.view.runtime_classes,
        first_certificates=first_certificates(requests, node_created, reader.now),
        events=await _read_events(reader, namespace),
    )


def _notes(cluster: KnownCluster) -> Iterator[str]:
    """Yield the problems of policies and manifests, what the scan assumes, and cannot see."""
    yield from map(str, cluster.problems)
    if cluster.why_image_is_assumed and len(cluster.view.policies):
        why = cluster.why_image_is_assumed
        yield f"the scan assumes that podsettle has the image of a helper, because {why}"
    for defect in DEFECTS:
        if defect.invisible is not None:
            how = f"{page_of(defect)} says how to look"
            yield f"the scan cannot see {defect.id}: {defect.invisible}; {how}"


async def _read_events(
    reader: ObjectReader, namespace: str | None
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
        named = event.involved_object
        texts = (event.message, event.reason, named.uid, named.field_path, named.name)
        # A single emoji multiplies the memory of its text.
        size += _EVENT_BYTES + sum(map(sys.getsizeof, texts))
        if size > MAX_EVENTS_BYTES:
            why = f"those with texts of symptoms take more than {MAX_EVENTS_BYTES:,} bytes"
            reader.areas.record(Area(object_readers.EVENTS.name, Looked.PARTLY, why))
            break
        events[key] = (*kept, event)
    return events


async def _events(
    reader: ObjectReader, namespace: str | None, field_selectors: Sequence[str]
) -> AsyncIterator[Event]:
    """Yield the events of lists, without those of the future: a tenant writes their times."""
    latest = reader.now + _CLOCK_SKEW
    async for event in reader.objects(object_readers.EVENTS, namespace, field_selectors):
        if event.time is None or event.time <= latest:
            yield event


async def _with_pod_events(reader: ObjectReader, facts: ScanFacts, pod: LivePod) -> ScanFacts:
    """Return facts for one pod, with all of its events."""
    selectors = [f"{object_readers.ABOUT}{pod.metadata.uid}"]
    events: list[Event] = []
    async for event in _events(reader, pod.metadata.namespace, selectors):
        if event.involved_object.pod_key == pod.key:
            events.append(event)
        if len(events) >= _MAX_POD_EVENTS:
            break
    return dataclasses.replace(facts, events={pod.key: [*facts.events.get(pod.key, ()), *events]})
