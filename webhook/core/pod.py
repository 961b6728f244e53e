"""The parts of an AdmissionReview and of a Pod that podsettle reads, as wire structs.

msgspec decodes these fields and skips the rest of the bytes. No object is ever made from them: a
typed round trip would lose fields that are newer than this file, so a patch names only the paths it
changes. `null` reads as absent, as the API server treats it, but for names: it would refuse a pod
without them. Fields stand in the API's own order, in which they are found soonest.

Fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ and
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from webhook.core.constants import HELPER_MOUNT

ABSENT = Raw()
_NULL = Raw(b"null")

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that Kubernetes would not send."""


def is_set(raw: Raw) -> bool:
    """Whether a field that stays undecoded is there and not null."""
    return bool(raw) and raw != _NULL


_HELPERS_PLACE = HELPER_MOUNT.strip("/").encode()
_BACKSLASH = ord("\\")


def may_hold_helper(mounts: bytes) -> bool:
    """Whether something may be mounted where the helper goes, by undecoded JSON.

    A path without these letters is another's, unless an escape hides them.
    """
    return mounts.find(_HELPERS_PLACE) >= 0 or _BACKSLASH in mounts


class _Wire(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    pass


class Present(_Wire):
    """Something of which nothing matters but that it is there."""


class SELinuxOptions(_Wire):
    """`securityContext.seLinuxOptions`."""

    level: str | None = None
    type: str | None = None


class SecurityContext(_Wire):
    """`securityContext` of a pod or a container."""

    run_as_user: int | None = None
    run_as_non_root: bool | None = None
    windows_options: Present | None = None
    se_linux_options: SELinuxOptions | None = msgspec.field(default=None, name="seLinuxOptions")
    se_linux_change_policy: str | None = msgspec.field(default=None, name="seLinuxChangePolicy")
    """Of a pod only."""


class VolumeMount(_Wire):
    """One entry of `volumeMounts`."""

    name: str = ""
    mount_path: str = ""


class VolumeDevice(_Wire):
    """One entry of `volumeDevices`."""

    device_path: str = ""


_decode_strings = msgspec.json.Decoder(list[str]).decode
_decode_mounts = msgspec.json.Decoder(list[VolumeMount]).decode
_decode_devices = msgspec.json.Decoder(list[VolumeDevice]).decode


class ExitCodes(_Wire):
    """`exitCodes` of a restart rule."""

    operator: str = ""
    values: list[int] | None = None


class RestartRule(_Wire):
    """One entry of `restartPolicyRules`; the first whose exit codes match decides."""

    action: str = ""
    exit_codes: ExitCodes | None = None


class Container(_Wire):
    """A regular or an init container."""

    name: str = ""
    image: str | None = None
    command: list[str] | None = None
    args: Raw = ABSENT
    resources: Raw = ABSENT
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None
    volume_mounts: Raw = ABSENT
    """Half of what a Tekton pod consists of, and hardly ever asked for: see `mounts`."""
    volume_devices: Raw = ABSENT
    liveness_probe: Present | None = None
    readiness_probe: Present | None = None
    startup_probe: Present | None = None
    security_context: SecurityContext | None = None
    stdin: bool | None = None
    tty: bool | None = None

    @property
    def has_args(self) -> bool:
        """Whether `args` are given. Raises one of UNREADABLE where they are no list of strings."""
        return is_set(self.args) and bool(_decode_strings(self.args))

    @property
    def has_mounts(self) -> bool:
        """Whether `volumeMounts` is there. Raises one of UNREADABLE where it is no list."""
        raw = self.volume_mounts
        return is_set(raw) and (bytes(raw).startswith(b"[") or self.mounts is not None)

    @property
    def mounts(self) -> list[VolumeMount]:
        """`volumeMounts`, decoded. Raises one of UNREADABLE."""
        return _decode_mounts(self.volume_mounts) if is_set(self.volume_mounts) else []

    @property
    def devices(self) -> list[VolumeDevice]:
        """`volumeDevices`, decoded. Raises one of UNREADABLE."""
        return _decode_devices(self.volume_devices) if is_set(self.volume_devices) else []


class Volume(_Wire):
    """One entry of `volumes`; only what tells a persistent one, and podsettle's own."""

    name: str = ""
    empty_dir: Present | None = None
    image: Present | None = None
    persistent_volume_claim: Present | None = None
    ephemeral: Present | None = None


class NodeSelectorRequirement(_Wire):
    """One requirement of a node selector term."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(_Wire):
    """Requirements on a node's labels and fields, all of which have to hold."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(_Wire):
    """Terms, one of which has to hold."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(_Wire):
    """`affinity.nodeAffinity`; preferences bind nothing and are not read."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Wire):
    """`affinity`."""

    node_affinity: NodeAffinity | None = None


class Toleration(_Wire):
    """One entry of `tolerations`."""

    key: str | None = None
    operator: str | None = None
    effect: str | None = None


_decode_tolerations = msgspec.json.Decoder(list[Toleration]).decode


class LocalObjectReference(_Wire):
    """One entry of `imagePullSecrets`."""

    name: str = ""


class PodOS(_Wire):
    """`spec.os`."""

    name: str = ""


class PodSpec(_Wire):
    """`spec` of a pod."""

    volumes: list[Volume] | None = None
    init_containers: list[Container] | None = None
    containers: list[Container] | None = None
    restart_policy: str | None = None
    node_selector: dict[str, str] | None = None
    service_account_name: str | None = None
    node_name: str | None = None
    host_network: bool | None = None
    security_context: SecurityContext | None = None
    image_pull_secrets: list[LocalObjectReference] | None = None
    affinity: Affinity | None = None
    tolerations: Raw = ABSENT
    """In every pod, and asked for by one remedy: see `tolerated`."""
    priority_class_name: str | None = None
    runtime_class_name: str | None = None
    overhead: dict[str, Any] | None = None
    os: PodOS | None = None

    @property
    def tolerated(self) -> list[Toleration]:
        """`tolerations`, decoded. Raises one of UNREADABLE."""
        return _decode_tolerations(self.tolerations) if is_set(self.tolerations) else []


class OwnerReference(_Wire):
    """One entry of `ownerReferences`."""

    kind: str = ""


class ObjectMeta(_Wire):
    """`metadata` of a pod."""

    name: str = ""
    generate_name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Pod(_Wire):
    """A pod as it is admitted: often without a name, never with a status that matters."""

    spec: PodSpec
    metadata: ObjectMeta | None = None

    @property
    def annotations(self) -> dict[str, str] | None:
        """`metadata.annotations`."""
        return self.metadata.annotations if self.metadata else None

    @property
    def labels(self) -> dict[str, str] | None:
        """`metadata.labels`."""
        return self.metadata.labels if self.metadata else None

    @property
    def name(self) -> str:
        """What it is called, for people: `build-x7*` where the API server is still to complete it.

        It does so after the webhooks have run.
        """
        if self.metadata is None:
            return ""
        return self.metadata.name or (
            self.metadata.generate_name and f"{self.metadata.generate_name}*"
        )


def is_sidecar(container: Container) -> bool:
    """Whether a container runs beside the others: a native sidecar, or one of Tekton's.

    Tekton stops its own by swapping the image for one in which the command must be absent.
    """
    return container.restart_policy == "Always" or container.name.startswith("sidecar-")


_decode_pod = msgspec.json.Decoder(Pod).decode


class GroupVersionResource(_Wire):
    """`request.resource`."""

    group: str = ""
    version: str = ""
    resource: str = ""


T = TypeVar("T", bound=Pod | Raw | None)


class Request(_Wire, Generic[T]):
    """`request` of an AdmissionReview."""

    uid: str
    resource: GroupVersionResource = msgspec.field(default_factory=GroupVersionResource)
    sub_resource: str | None = None
    namespace: str | None = None
    operation: str = ""
    object: T = msgspec.field(default=None)  # type: ignore[assignment]

    @property
    def pod(self) -> Pod:
        """The object as a pod. Raises one of UNREADABLE where podsettle cannot read it as one."""
        found: Pod | Raw | None = self.object
        return found if isinstance(found, Pod) else _decode_pod(found or _NULL)


class Review(_Wire, Generic[T]):
    """An AdmissionReview of any version."""

    request: Request[T]
    api_version: str = ""
    kind: str = ""


_decode_with_pod = msgspec.json.Decoder(Review[Pod | None]).decode
_decode_undecoded = msgspec.json.Decoder(Review[Raw]).decode


def decode_review(body: bytes) -> Review[Any]:
    """Bytes to Review. Raises one of UNREADABLE for what is not JSON or not a review.

    The pod is decoded in the same pass. Where that fails the review is read without it: who asks
    for its `pod` gets the error.
    """
    try:
        return _decode_with_pod(body)
    except UNREADABLE:
        return _decode_undecoded(body)


class _BareRequest(_Wire):
    uid: str


class _BareReview(_Wire):
    request: _BareRequest


_decode_bare = msgspec.json.Decoder(_BareReview).decode


_UID_AT_HEAD = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([-0-9A-Za-z]{1,128})"')
_HEAD = 1024


def uid_of(body: bytes) -> str | None:
    """The uid to answer to in a body that is no Review podsettle can read, else None.

    Where the body is not even JSON, or nested too deeply, or cut short, the API server's own order
    of fields helps: the uid stands before the object.
    """
    try:
        return _decode_bare(body).request.uid
    except UNREADABLE:
        found = _UID_AT_HEAD.search(body[:_HEAD])
        return found[1].decode() if found else None
