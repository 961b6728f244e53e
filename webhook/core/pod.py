"""The fields of a Pod that podsettle reads, as wire structs.

msgspec decodes these fields and skips all others. A struct is never encoded back into a pod,
because fields that are newer than this file would be lost. A patch names only the paths that it
changes.

`null` reads as an absent field, as in the API server. Names are the exception: the API server
rejects a pod without them. The fields stand in the order of the API's documentation, because the
API server encodes them in that order and msgspec then finds each one soonest.

Fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/

Long because a pod has many parts and each is a struct of a few lines.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from webhook.core.constants import HELPER_MOUNT

UNSET = Raw()
"""The value of an undecoded field that is absent."""
_NULL = Raw(b"null")

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that decoding raises for bytes that Kubernetes would not send."""


def is_set(raw: Raw) -> bool:
    """Return whether an undecoded field is present and not null."""
    return bool(raw) and raw != _NULL


_HELPER_MOUNT_NAME = HELPER_MOUNT.strip("/").encode()
_BACKSLASH = ord("\\")


def may_mount_helper_path(mounts: bytes) -> bool:
    """Return whether undecoded `volumeMounts` may contain a path below the helper's mount path.

    Other paths do not contain the mount path's name. A backslash counts as a match, because a JSON
    escape can hide the name.
    """
    return mounts.find(_HELPER_MOUNT_NAME) >= 0 or _BACKSLASH in mounts


class WireStruct(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    """The base of all structs that are decoded from the API server's JSON."""


class AnyObject(WireStruct):
    """An object whose fields are not read: only its presence matters."""


class SELinuxOptions(WireStruct):
    """`securityContext.seLinuxOptions`."""

    level: str | None = None
    type: str | None = None


class SecurityContext(WireStruct):
    """`securityContext` of a pod or a container."""

    run_as_user: int | None = None
    run_as_non_root: bool | None = None
    windows_options: AnyObject | None = None
    se_linux_options: SELinuxOptions | None = msgspec.field(default=None, name="seLinuxOptions")
    se_linux_change_policy: str | None = msgspec.field(default=None, name="seLinuxChangePolicy")
    """Of a pod only."""


class VolumeMount(WireStruct):
    """One entry of `volumeMounts`."""

    name: str = ""
    mount_path: str = ""


class VolumeDevice(WireStruct):
    """One entry of `volumeDevices`."""

    device_path: str = ""


_decode_strings = msgspec.json.Decoder(list[str]).decode
_decode_mounts = msgspec.json.Decoder(list[VolumeMount]).decode
_decode_devices = msgspec.json.Decoder(list[VolumeDevice]).decode


class ExitCodes(WireStruct):
    """`exitCodes` of a restart rule."""

    operator: str = ""
    values: list[int] | None = None


class RestartRule(WireStruct):
    """One entry of `restartPolicyRules`; the first whose exit codes match decides."""

    action: str = ""
    exit_codes: ExitCodes | None = None


class Container(WireStruct):
    """A regular or an init container."""

    name: str = ""
    image: str | None = None
    command: list[str] | None = None
    args: Raw = UNSET
    resources: Raw = UNSET
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None
    volume_mounts: Raw = UNSET
    """Half of what a Tekton pod consists of, and hardly ever asked for: see `mounts`."""
    volume_devices: Raw = UNSET
    liveness_probe: AnyObject | None = None
    readiness_probe: AnyObject | None = None
    startup_probe: AnyObject | None = None
    security_context: SecurityContext | None = None
    stdin: bool | None = None
    tty: bool | None = None

    @property
    def has_args(self) -> bool:
        """Whether the pod sets `args`. Raises one of DECODE_ERRORS if they are no strings."""
        return is_set(self.args) and bool(_decode_strings(self.args))

    @property
    def has_mounts(self) -> bool:
        """Whether `volumeMounts` is there. Raises one of DECODE_ERRORS where it is no list."""
        raw = self.volume_mounts
        return is_set(raw) and (bytes(raw).startswith(b"[") or self.mounts is not None)

    @property
    def mounts(self) -> list[VolumeMount]:
        """`volumeMounts`, decoded. Raises one of DECODE_ERRORS."""
        return _decode_mounts(self.volume_mounts) if is_set(self.volume_mounts) else []

    @property
    def devices(self) -> list[VolumeDevice]:
        """`volumeDevices`, decoded. Raises one of DECODE_ERRORS."""
        return _decode_devices(self.volume_devices) if is_set(self.volume_devices) else []


class Volume(WireStruct):
    """One entry of `volumes`; only what tells a persistent one, and podsettle's own."""

    name: str = ""
    empty_dir: AnyObject | None = None
    image: AnyObject | None = None
    persistent_volume_claim: AnyObject | None = None
    ephemeral: AnyObject | None = None


class NodeSelectorRequirement(WireStruct):
    """One requirement of a node selector term."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(WireStruct):
    """Requirements on a node's labels and fields, all of which have to hold."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(WireStruct):
    """Terms, one of which has to hold."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(WireStruct):
    """`affinity.nodeAffinity`; preferences bind nothing and are not read."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(WireStruct):
    """`affinity`."""

    node_affinity: NodeAffinity | None = None


class Toleration(WireStruct):
    """One entry of `tolerations`."""

    key: str | None = None
    operator: str | None = None
    effect: str | None = None


_decode_tolerations = msgspec.json.Decoder(list[Toleration]).decode


class LocalObjectReference(WireStruct):
    """One entry of `imagePullSecrets`."""

    name: str = ""


class PodOS(WireStruct):
    """`spec.os`."""

    name: str = ""


class PodSpec(WireStruct):
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
    tolerations: Raw = UNSET
    """In every pod, and asked for by one remedy: see `tolerated`."""
    priority_class_name: str | None = None
    runtime_class_name: str | None = None
    overhead: dict[str, Any] | None = None
    os: PodOS | None = None

    @property
    def tolerated(self) -> list[Toleration]:
        """`tolerations`, decoded. Raises one of DECODE_ERRORS."""
        return _decode_tolerations(self.tolerations) if is_set(self.tolerations) else []


class OwnerReference(WireStruct):
    """One entry of `ownerReferences`."""

    kind: str = ""


class ObjectMeta(WireStruct):
    """`metadata` of a pod."""

    name: str = ""
    generate_name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Pod(WireStruct):
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


decode_pod = msgspec.json.Decoder(Pod).decode
"""Decode a pod from JSON. Raises one of DECODE_ERRORS."""
