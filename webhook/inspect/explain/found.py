"""What was found about a target: the object itself, its pods and podsettle's events about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from webhook.cluster.reader import ClusterReader
from webhook.cluster.unread import NotAllowedError
from webhook.core.pod import OwnerReference
from webhook.core.reasons import Reason
from webhook.inspect.cluster_flags import NO_FLAGS, ClusterFlags
from webhook.inspect.explain.model import EventNote, PodExplanation, Unknown, WorkloadExplanation
from webhook.inspect.explain.pod import explain_pod
from webhook.inspect.explain.target import CRON_JOB, JOB, POD, ObjectTarget
from webhook.inspect.explain.today import missing_right
from webhook.inspect.explain.workload import PodGroups, explain_workload
from webhook.inspect.exported_policies import MUTATING, ExportedPolicy, read_exported
from webhook.inspect.findings import Looked
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.objects import Event
from webhook.inspect.paged import Resource
from webhook.inspect.scan.resources import EVENTS, PODS, ObjectReader
from webhook.inspect.scan.workload import WorkloadName, workload_of

_EVENT_SELECTOR = "source=podsettle"
_MAX_EVENTS = 20
"""The maximum number of events in an explanation, because people read them."""
_MAX_POD_EVENTS = 500
"""The maximum number of events of one pod, because tenants can create many."""


class NotFoundError(Exception):
    """Raised if the target does not exist or cannot be read. The text says why."""


@dataclass(frozen=True, slots=True)
class Found:
    """The object of a target, and what belongs to it."""

    document: Mapping[str, Any]
    namespace: str
    pods: PodGroups = field(default_factory=PodGroups)
    """The pods of a workload. Empty for a pod."""
    events: tuple[EventNote, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    exported: tuple[ExportedPolicy, ...] = ()
    """The native policies of the cluster that change pods."""
    pod_events: tuple[Event, ...] = ()
    """The events about a pod, by any component."""


def explain(
    target: ObjectTarget, found: Found, cluster: KnownCluster
) -> PodExplanation | WorkloadExplanation:
    """Return the explanation of an object. Raises one of DECODE_ERRORS for a malformed pod."""
    if target.kind is POD:
        return explain_pod(
            found.document,
            cluster,
            found.namespace,
            found.events,
            found.unknown,
            found.exported,
            found.pod_events,
        )
    return explain_workload(
        target,
        found.document,
        found.pods,
        cluster,
        found.namespace,
        found.events,
        found.unknown,
        found.exported,
    )


async def with_exported(
    reader: ClusterReader, found: Found, flags: ClusterFlags = NO_FLAGS
) -> Found:
    """Return what was found, with the native policies. Raises ApiError and Unreachable.

    `flags` are those of printed commands.
    """
    try:
        exported = await read_exported(reader, MUTATING)
    except NotAllowedError as error:
        unknown = missing_right(MUTATING.plural, error.right, f"it {error}", flags)
        return replace(found, unknown=(*found.unknown, unknown))
    return replace(found, exported=exported.policies)


async def find_related(
    reader: ObjectReader,
    target: ObjectTarget,
    document: Mapping[str, Any],
    namespace: str,
    flags: ClusterFlags = NO_FLAGS,
) -> Found:
    """Return an object with its pods and with podsettle's events about it or its controllers.

    `flags` are those of printed commands.
    """
    pods, uids = PodGroups(), _own_and_owner_uids(document)
    resources: list[Resource[Any]] = [EVENTS] if target.kind is POD else [PODS, EVENTS]
    if target.kind is not POD:
        async for pod in reader.objects(PODS, namespace):
            if _belongs(workload_of(pod.metadata), target):
                pods.add(pod.metadata.name, pod.before_scheduling())
                uids |= _uids(pod.metadata.owner_references or ())
    # podsettle writes its events about the controllers of pods, because a pod has no uid yet.
    events = [
        event
        async for event in reader.objects(EVENTS, namespace, _EVENT_SELECTOR)
        if event.involved_object.uid in uids
    ]
    pod_events: list[Event] = []
    metadata = document.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
    if target.kind is POD and isinstance(uid, str) and uid:
        async for event in reader.objects(EVENTS, namespace, f"involvedObject.uid={uid}"):
            pod_events.append(event)
            if len(pod_events) >= _MAX_POD_EVENTS:
                break
    unread = tuple(_unread(reader, resources, namespace, flags))
    return Found(document, namespace, pods, _notes(events), unread, pod_events=tuple(pod_events))


def _belongs(owner: WorkloadName, target: ObjectTarget) -> bool:
    """Return whether a workload is the target, or a Job that a CronJob has created.

    The CronJob controller names a Job after the CronJob and the scheduled time (`getJobName` in
    kubernetes `pkg/controller/cronjob/utils.go`).
    """
    if target.kind is CRON_JOB:
        return owner.kind == JOB.kind and _is_scheduled(owner.name, target.name)
    return (owner.kind, owner.name) == (target.kind.kind, target.name)


def _is_scheduled(job: str, cron_job: str) -> bool:
    return job.startswith(f"{cron_job}-") and job.removeprefix(f"{cron_job}-").isdecimal()


def _own_and_owner_uids(document: Mapping[str, Any]) -> set[str]:
    """Return the uid of an object and those of its owners."""
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping):
        return set()
    owners = metadata.get("ownerReferences")
    references = [metadata, *(owners if isinstance(owners, list) else ())]
    found = (each.get("uid") for each in references if isinstance(each, Mapping))
    return {uid for uid in found if isinstance(uid, str) and uid}


def _uids(owners: Iterable[OwnerReference]) -> set[str]:
    return {owner.uid for owner in owners if owner.uid}


def _notes(events: Iterable[Event]) -> tuple[EventNote, ...]:
    """Return podsettle's events, the latest first."""
    notes = []
    for event in events:
        reason = Reason.of(event.reason)
        if reason is not None:
            about = event.involved_object
            notes.append(
                EventNote(
                    about=f"{about.kind}/{about.name}",
                    reason=reason,
                    message=event.message,
                    last_seen=event.time,
                )
            )
    notes.sort(key=lambda note: note.last_seen.timestamp() if note.last_seen else 0, reverse=True)
    return tuple(notes[:_MAX_EVENTS])


def _unread(
    reader: ObjectReader, resources: Iterable[Resource[Any]], namespace: str, flags: ClusterFlags
) -> Iterable[Unknown]:
    """Yield the lists that could not be read, with the missing rights."""
    for resource in resources:
        area = reader.areas.named(resource.name)
        if area.looked is not Looked.NOT_LOOKED_AT:
            continue
        if area.right:
            right = resource.right(namespace)
            yield missing_right(resource.name, right, f"needs the right to {right}", flags)
        else:
            yield Unknown(what=resource.name, why=area.why)
