"""The fields of live objects that the commands for a cluster read, as wire structs.

Each object of a list is decoded alone, and all other fields are skipped. The spec of a pod is that
of `webhook.core.pod`, so that a decision on a live pod needs no second decoding.

Tenants write events, and the owners of pods. The API server limits neither their texts nor their
times, so these structs do: they cut long texts, and a time that cannot be one is None.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from webhook.core.constants import OBJECT_NAME
from webhook.core.pod import UNSET, ObjectMeta, Pod, WireStruct
from webhook.core.printable import cut
from webhook.inspect.cluster_flags import Command, kubectl

MAX_NAME_CHARACTERS = 253
"""The maximum length of a text that is no message. The API server allows no longer names."""
MAX_MESSAGE_CHARACTERS = 1_024
"""The maximum length of a message. The texts that symptoms read stand at its beginning."""
WORKLOAD_GROUPS = {"Deployment": "apps", "StatefulSet": "apps", "DaemonSet": "apps", "Job": "batch"}
"""The kinds of Kubernetes that create pods, with their API groups. Other groups have kinds of the
same names, such as OpenKruise's."""
_NOT_OF_TEMPLATE = {("Pod", ""), ("Node", ""), ("Deployment", "apps")}
"""The kinds and API groups of owners that have no template of the pod: the driver of a Spark
executor, the node of a mirror pod, and the Deployment of Flink's JobManager, which owns the pods of
TaskManagers. Pods of a Deployment's template are owned by ReplicaSets."""
_FIRST_TIME, _LAST_TIME = datetime(1970, 1, 2, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""The times that can be meant. Arithmetic with others can leave the range of `datetime`."""

_MAX_GRACE_SECONDS = 365 * 86_400
"""A tenant chooses the grace period of a pod."""


def _bound(struct: msgspec.Struct) -> None:
    """Cut the long texts of a struct, and discard its impossible times. Others are then in UTC."""
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, str):
            limit = MAX_MESSAGE_CHARACTERS if name == "message" else MAX_NAME_CHARACTERS
            if len(value) > limit:
                force_setattr(struct, name, cut(value, limit))
        elif isinstance(value, datetime):
            time = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            is_possible = _FIRST_TIME <= time <= _LAST_TIME
            force_setattr(struct, name, time.astimezone(UTC) if is_possible else None)


class _Bounded(WireStruct):
    """A struct whose texts and times are bounded."""

    def __post_init__(self) -> None:
        """Cut long texts, and discard impossible times."""
        _bound(self)


class WorkloadName(NamedTuple):
    """The controller of a pod, or the pod itself if none created it from a template."""

    kind: str
    name: str
    namespace: str
    group: str = ""
    """The API group of the kind."""

    @property
    def title(self) -> str:
        """The kind and name for people, such as `Deployment/web`."""
        return f"{self.kind}/{self.name}"

    @property
    def rollout_command(self) -> Command:
        """The command that replaces the workload's pods. Empty if there is none.

        The API server does not check the name of an owner, so it may contain a command of a shell.
        """
        names = all(map(OBJECT_NAME.fullmatch, (self.namespace, self.name)))
        if not (names and WORKLOAD_GROUPS.get(self.kind) == self.group == "apps"):
            return ()
        target = f"{self.kind.lower()}/{self.name}"
        return kubectl("-n", self.namespace, "rollout", "restart", target)


class LiveMetadata(ObjectMeta):
    """`metadata` of an object that the API server has stored."""

    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    managed_fields: msgspec.Raw = UNSET
    """Undecoded, because it is a third of a pod, and read of few."""

    def __post_init__(self) -> None:
        """Cut long texts, also those of owners, and discard an impossible time."""
        for each in (self, *(self.owner_references or ())):
            _bound(each)

    @property
    def deleted_at(self) -> datetime | None:
        """When the deletion was requested, or None. The timestamp is that of its end."""
        if self.deletion_timestamp is None:
            return None
        seconds = min(max(self.deletion_grace_period_seconds or 0, 0), _MAX_GRACE_SECONDS)
        return self.deletion_timestamp - timedelta(seconds=seconds)

    @property
    def workload(self) -> WorkloadName:
        """The workload of a pod.

        A ReplicaSet of a Deployment is named after it and the hash of its template, which the pod
        has as a label. So no ReplicaSet has to be read.
        """
        owners = self.owner_references or ()
        owner = next((each for each in owners if each.controller), owners[0] if owners else None)
        group = owner.api_version.rpartition("/")[0] if owner is not None else ""
        if owner is None or (owner.kind, group) in _NOT_OF_TEMPLATE:
            return WorkloadName("Pod", self.name, self.namespace)
        kind, name = owner.kind, owner.name
        template_hash = (self.labels or {}).get("pod-template-hash")
        if kind == "ReplicaSet" and template_hash and name.endswith(f"-{template_hash}"):
            kind, name = "Deployment", name.removesuffix(f"-{template_hash}")
        return WorkloadName(kind, name, self.namespace, group)


class StateDetails(_Bounded):
    """`waiting`, `running` or `terminated` of a container's state. Each has some of the fields."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(WireStruct):
    """The state of a container. At most one field is set."""

    waiting: StateDetails | None = None
    running: StateDetails | None = None
    terminated: StateDetails | None = None

    @property
    def started_at(self) -> datetime | None:
        """When the container started, if it runs or has ended."""
        details = self.running or self.terminated
        return details.started_at if details is not None else None


class ContainerStatus(WireStruct):
    """One entry of `initContainerStatuses` or `containerStatuses`."""

    name: str = ""
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    restart_count: int = 0


class Condition(_Bounded):
    """One entry of `status.conditions`."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None
    last_update_time: datetime | None = None


class Status(WireStruct):
    """`status` of an object."""

    conditions: list[Condition] | None = None

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of a type, or None."""
        return next((each for each in self.conditions or () if each.type == type_), None)


class NamedObject(WireStruct):
    """The metadata of an object. The rest of a node is in the view of the cluster."""

    metadata: LiveMetadata


class PodStatus(Status):
    """`status` of a pod."""

    phase: str = ""
    reason: str = ""
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None


PodKey: TypeAlias = tuple[str, str, str]
"""The namespace, name and uid of a pod. The uid alone is no key: an event can name any."""


class LivePod(Pod):
    """A pod that the API server has stored."""

    metadata: LiveMetadata
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def title(self) -> str:
        """The pod for messages, such as `pod ci/build-1`."""
        return f"pod {self.metadata.namespace}/{self.metadata.name}"

    @property
    def key(self) -> PodKey:
        """The identity of the pod."""
        return self.metadata.namespace, self.metadata.name, self.metadata.uid


class ObjectReference(_Bounded):
    """`involvedObject` of an event."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    field_path: str = ""

    @property
    def pod_key(self) -> PodKey | None:
        """The identity of the pod, or None for another object."""
        return (self.namespace, self.name, self.uid) if self.kind == "Pod" else None


class EventSeries(_Bounded):
    """`series` of an event that happened several times."""

    last_observed_time: datetime | None = None


class EventMetadata(_Bounded):
    """`metadata` of an event, without the labels and annotations, which may be large."""

    namespace: str = ""
    creation_timestamp: datetime | None = None


class Event(_Bounded):
    """An event of core/v1."""

    metadata: EventMetadata
    involved_object: ObjectReference
    reason: str = ""
    message: str = ""
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: EventSeries | None = None

    @property
    def first_time(self) -> datetime | None:
        """When the event first happened."""
        return self.first_timestamp or self.event_time or self.metadata.creation_timestamp

    @property
    def time(self) -> datetime | None:
        """When the event last happened."""
        observed = self.series.last_observed_time if self.series is not None else None
        return observed or self.last_timestamp or self.first_time


class SigningRequestSpec(WireStruct):
    """`spec` of a CertificateSigningRequest."""

    signer_name: str = ""
    username: str = ""


class SigningRequest(WireStruct):
    """A CertificateSigningRequest."""

    metadata: LiveMetadata
    spec: SigningRequestSpec
    status: Status = msgspec.field(default_factory=Status)
