"""The fields of a Pod that podsettle reads, as wire structs.

msgspec decodes these fields and skips all others. A struct is never encoded back into a pod,
because fields that are newer than this file would be lost. A patch names only the paths that it
changes.

A field that is `null` is decoded as an absent field, as in the API server. Only names must not be
`null`, because the API server rejects a pod without them. The structs declare their fields in the
order of the API's documentation. The API server encodes them in that order, and msgspec decodes
fastest if the order of the JSON is that of the struct.

Fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, dataclass_transform

import msgspec
from msgspec import Raw

UNSET = Raw()
"""The value of an undecoded field that is absent."""
_NULL = Raw(b"null")

MAX_QUANTITY_CHARACTERS = 100
"""The maximum length of a quantity. The API server writes at most about thirty characters."""
Quantity: TypeAlias = str | int | float
"""An amount of a resource. The API server writes it as a text."""

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that decoding raises for bytes that Kubernetes would not send."""


def is_set(raw: Raw) -> bool:
    """Return whether an undecoded field is present and not null."""
    return bool(raw) and raw != _NULL


# Type checkers do not pass `frozen` on to subclasses without this declaration.
@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class WireStruct(msgspec.Struct, rename="camel", gc=False, frozen=True, omit_defaults=True):
    """The base of all structs that are decoded from the API server's JSON."""


class AnyObject(WireStruct):
    """An object whose fields are not read. Decisions depend only on whether it is present."""


class WindowsOptions(WireStruct):
    """`securityContext.windowsOptions`."""

    gmsa_credential_spec_name: str | None = None
    gmsa_credential_spec: str | None = None
    run_as_user_name: str | None = None
    host_process: bool | None = None


class SELinuxOptions(WireStruct):
    """`securityContext.seLinuxOptions`."""

    level: str | None = None
    type: str | None = None


class Capabilities(WireStruct):
    """`capabilities` of a container's `securityContext`."""

    add: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None


class SecurityContext(WireStruct):
    """`securityContext` of a pod or a container."""

    capabilities: Capabilities | None = None
    privileged: bool | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    allow_privilege_escalation: bool | None = None
    """This field, `privileged` and `capabilities` are fields of containers only."""
    windows_options: WindowsOptions | None = None
    se_linux_options: SELinuxOptions | None = msgspec.field(default=None, name="seLinuxOptions")
    seccomp_profile: AnyObject | None = None
    fs_group: int | None = None
    fs_group_change_policy: str | None = None
    se_linux_change_policy: str | None = msgspec.field(default=None, name="seLinuxChangePolicy")
    """This field and the two before it are fields of the pod only, not of its containers."""


class MountedVolume(WireStruct):
    """The volume of an entry of `volumeMounts`."""

    name: str = ""


class VolumeMount(MountedVolume):
    """One entry of `volumeMounts`."""

    mount_path: str = ""
    sub_path: str | None = None
    sub_path_expr: str | None = None


class VolumeDevice(WireStruct):
    """One entry of `volumeDevices`."""

    device_path: str = ""


_decode_strings = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_mounts = msgspec.json.Decoder(list[VolumeMount]).decode
_decode_mounted = msgspec.json.Decoder(list[MountedVolume]).decode
_decode_devices = msgspec.json.Decoder(list[VolumeDevice]).decode


class ExitCodes(WireStruct):
    """`exitCodes` of a restart rule."""

    operator: str = ""
    values: list[int] | None = None


class RestartRule(WireStruct):
    """One entry of `restartPolicyRules`. The kubelet applies the first one that matches."""

    action: str = ""
    exit_codes: ExitCodes | None = None


class ContainerFields(WireStruct):
    """The fields of a container that a remedy may read as they are."""

    name: str = ""
    resources: Raw = UNSET
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None
    liveness_probe: AnyObject | None = None
    readiness_probe: AnyObject | None = None
    startup_probe: AnyObject | None = None
    security_context: SecurityContext | None = None
    stdin: bool | None = None
    tty: bool | None = None


class Container(ContainerFields):
    """A regular or an init container."""

    image: str | None = None
    command: list[str] | None = None
    args: Raw = UNSET
    volume_mounts: Raw = UNSET
    """Undecoded to save time: mounts are half of a Tekton pod's bytes. Use `mounts` instead."""
    volume_devices: Raw = UNSET
    image_pull_policy: str | None = None

    @property
    def decoded_args(self) -> tuple[str, ...]:
        """The decoded `args`. Raises one of DECODE_ERRORS if it is no list of strings."""
        return _decode_strings(self.args) if is_set(self.args) else ()

    @property
    def has_args(self) -> bool:
        """Whether `args` is not empty. Raises one of DECODE_ERRORS if it is no list of strings."""
        return bool(self.decoded_args)

    @property
    def has_mounts(self) -> bool:
        """Whether `volumeMounts` is set. Raises one of DECODE_ERRORS if it is no list."""
        raw = self.volume_mounts
        return is_set(raw) and (bytes(raw).startswith(b"[") or self.mounts is not None)

    @property
    def mounts(self) -> list[VolumeMount]:
        """The decoded `volumeMounts`. Raises one of DECODE_ERRORS."""
        return _decode_mounts(self.volume_mounts) if is_set(self.volume_mounts) else []

    @property
    def devices(self) -> list[VolumeDevice]:
        """The decoded `volumeDevices`. Raises one of DECODE_ERRORS."""
        return _decode_devices(self.volume_devices) if is_set(self.volume_devices) else []


class ImageVolume(WireStruct):
    """`image` of a volume."""

    reference: str = ""


class Claim(WireStruct):
    """`persistentVolumeClaim` of a volume."""

    read_only: bool | None = None


class Volume(WireStruct):
    """One entry of `volumes`, with the sources that remedies look for."""

    name: str = ""
    empty_dir: AnyObject | None = None
    image: ImageVolume | None = None
    persistent_volume_claim: Claim | None = None
    ephemeral: AnyObject | None = None

    @property
    def is_persistent(self) -> bool:
        """Whether it is a generic ephemeral volume, or a claim that is not read-only.

        Of a read-only claim, neither owners nor labels of files are changed (kubernetes
        `pkg/volume/csi/csi_mounter.go`: `supportsFSGroup`, and `Managed` of `GetAttributes`).
        """
        claim = self.persistent_volume_claim
        return self.ephemeral is not None or (claim is not None and not claim.read_only)


class NodeSelectorRequirement(WireStruct):
    """One requirement of a node selector term."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(WireStruct):
    """A list of requirements on a node's labels and fields. A node must meet all of them."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(WireStruct):
    """A list of node selector terms. A node must meet at least one of them."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(WireStruct):
    """`affinity.nodeAffinity`. Preferences are not read: they exclude no node."""

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


class SpecFields(WireStruct):
    """The fields of `spec` that a remedy may read as they are."""

    restart_policy: str | None = None
    node_selector: dict[str, str] | None = None
    node_name: str | None = None
    host_network: bool | None = None
    share_process_namespace: bool | None = None
    security_context: SecurityContext | None = None
    affinity: Affinity | None = None
    tolerations: Raw = UNSET
    """Undecoded: every pod has tolerations, but only one remedy reads them."""
    priority_class_name: str | None = None
    runtime_class_name: str | None = None
    overhead: dict[str, Quantity | None] | None = None
    os: PodOS | None = None
    host_users: bool | None = None
    resources: Raw = UNSET
    """The limits of the whole pod (KEP-2837)."""

    @property
    def decoded_tolerations(self) -> list[Toleration]:
        """The decoded `tolerations`. Raises one of DECODE_ERRORS."""
        return _decode_tolerations(self.tolerations) if is_set(self.tolerations) else []


class PodSpec(SpecFields):
    """`spec` of a pod."""

    volumes: list[Volume] | None = None
    init_containers: list[Container] | None = None
    containers: list[Container] | None = None
    service_account_name: str | None = None
    host_pid: bool | None = msgspec.field(default=None, name="hostPID")
    host_ipc: bool | None = msgspec.field(default=None, name="hostIPC")
    image_pull_secrets: list[LocalObjectReference] | None = None

    def mounted_names(self) -> Iterator[str]:
        """Yield the names in the `volumeMounts` of containers. Raises one of DECODE_ERRORS.

        The kubelet mounts no other volumes. Those in `volumeDevices` are block devices without
        files (kubernetes `pkg/volume/util/util.go`: `GetPodVolumeNames`).
        """
        for containers in (self.containers, self.init_containers):
            for each in containers or ():
                if is_set(each.volume_mounts):
                    for mount in _decode_mounted(each.volume_mounts):
                        yield mount.name


class OwnerReference(WireStruct):
    """One entry of `ownerReferences`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectName(WireStruct):
    """The name in `metadata` of a pod."""

    name: str = ""
    generate_name: str = ""

    @property
    def for_messages(self) -> str:
        """The name, or `generateName` with a star, such as `build-x7*`.

        The API server completes a generated name after the webhooks have run.
        """
        return self.name or (self.generate_name and f"{self.generate_name}*")


class ObjectMeta(ObjectName):
    """`metadata` of a pod."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Pod(WireStruct):
    """A pod in an admission request. It often has no name yet."""

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
        """The pod's name for messages. Empty if it has none."""
        return self.metadata.for_messages if self.metadata else ""


def is_sidecar(container: ContainerFields, *, is_regular: bool = False) -> bool:
    """Return whether a container is a native sidecar or a sidecar of Tekton.

    The names of Tekton's sidecars begin with `sidecar-`. Tekton stops a sidecar by replacing its
    image with an image that does not contain its command. A regular container may have the
    restartPolicy of a native sidecar (KEP-5307).
    """
    is_native = container.restart_policy == "Always" and not is_regular
    return is_native or container.name.startswith("sidecar-")


def restarts_always(container: ContainerFields, of_pod: str | None) -> bool:
    """Return whether a regular container starts again whenever it ends.

    Its own restartPolicy counts before that of the pod (KEP-5307).
    """
    return (container.restart_policy or of_pod or "Always") == "Always"


decode_pod = msgspec.json.Decoder(Pod).decode
"""Decode a pod from JSON. Raises one of DECODE_ERRORS."""
