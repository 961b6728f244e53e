"""Everything that a decision may depend on, apart from the plan and the cluster.

Remedies receive these structs, and never the pod itself. The encoded DecisionInput is the key of
the decision cache, so a decision cannot depend on a field that its key omits. If a remedy reads a
further field, the type check fails until that field is declared: in `SpecFields` or
`ContainerFields` if remedies read it as it is, otherwise here.

The facts omit what differs between pods of one template: arguments, the names of pods, volumes and
mounts, the keys and values of labels, annotations of others, and the scripts that Tekton renames
for each sidecar. The image of a container with a command is omitted too, because it differs between
builds.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from msgspec.structs import astuple, replace

from webhook.core.constants import (
    ANNOTATION_SKIP,
    ANNOTATION_SKIPPED,
    ANNOTATION_START_GATE,
    ANNOTATION_SUMMARY,
    HELPER,
    HELPER_MOUNT,
    HELPER_PATH,
    MAX_NOTE_BYTES,
    OWN_ANNOTATIONS,
    OWN_CONTAINERS,
    SYSTEM_NAMESPACE_PREFIXES,
)
from webhook.core.images import MAX_REFERENCE_CHARACTERS
from webhook.core.pod import (
    Container,
    ContainerFields,
    ImageVolume,
    Pod,
    SpecFields,
    Volume,
    WireStruct,
    is_sidecar,
)

_HELPER_MOUNT_NAME = HELPER_MOUNT.strip("/")
_HELPER_MOUNT_NAME_BYTES = _HELPER_MOUNT_NAME.encode()
_BRACKET, _BACKSLASH = b"[\\"
_READ_ANNOTATIONS = tuple(sorted(OWN_ANNOTATIONS | {ANNOTATION_SKIP, ANNOTATION_START_GATE}))
MAX_ANNOTATION_CHARACTERS = 4096
"""The number of characters of an annotation that are read. podsettle writes at most some hundred. A
client can send megabytes, which a patch would copy."""
_MAX_SKIPPED_CHARACTERS = MAX_NOTE_BYTES[ANNOTATION_SKIPPED] - len(ANNOTATION_SKIPPED)
"""The maximum length of ANNOTATION_SKIPPED as podsettle writes it."""

CRIO_ANNOTATION = re.compile(
    r"(?:io\.kubernetes\.cri-o\.|(?:[a-z0-9-]+\.)*crio\.io(?:/|$)"
    r"|seccomp-profile\.kubernetes\.cri-o\.io|io\.containers\.trace-syscall"
    r"|io\.kubernetes\.cri\.(?:rdt-class|container-type)|org\.opencontainers\.image\.stopSignal"
    r"|bundle|org\.systemd\.property\.|org\.criu\.config|module\.wasm\.image/variant|run\.oci\.)",
    re.ASCII,
)
"""The annotations that CRI-O drops unless the handler or workload allows them
(`AllAllowedAnnotations` in cri-o `pkg/annotations/v2`, and the names of earlier releases)."""
# With them, pods activate the workloads of OpenShift: for builds, for containers in containers, and
# for workload partitioning.
_CRIO_WORKLOAD = r"io\.openshift\.[^/]+$|target\.workload\.openshift\.io/"
CRIO_KEY = re.compile(f"(?:{CRIO_ANNOTATION.pattern}|{_CRIO_WORKLOAD})", re.ASCII)
"""The annotations that decide what CRI-O does with a pod: CRIO_ANNOTATION, and those that activate
a workload. One pattern, because it is matched with each annotation of each review."""
MAX_CRIO_ANNOTATIONS = 32
"""The number of annotations for CRI-O that are read. A pod has a few. A client can send any
number."""


class EntrypointImage(WireStruct):
    """The image whose entrypoint a container without a command starts."""

    reference: str = ""
    has_args: bool = False
    """Whether the container sets `args`, which replace the Cmd of the image."""


class ContainerFacts(ContainerFields):
    """The facts about a container on which a decision may depend."""

    command: Sequence[str] | None = None
    """The command. It is also None for a sidecar that is not podsettle's own."""
    starts_helper: bool = False
    """Whether the command starts with the helper's path."""
    entrypoint_image: EntrypointImage | None = None
    """None if the container has a command, and for a sidecar that is not podsettle's own."""
    has_mounts: bool = False
    """Whether the container sets `volumeMounts`. False for a sidecar that is not podsettle's."""
    mounts_over_helper: bool = False
    """Whether the container mounts a volume or a device at the helper's path. False for a sidecar
    that is not podsettle's."""

    @property
    def omits_command_and_mounts(self) -> bool:
        """Whether the container is a sidecar that is not podsettle's own."""
        return self.command is None and self.entrypoint_image is None


class PodFacts(SpecFields):
    """The facts about a pod on which a decision may depend."""

    init_containers: tuple[ContainerFacts, ...] | None = None
    containers: tuple[ContainerFacts, ...] | None = None
    volume_count: int | None = None
    """The number of volumes. None if the pod does not set `volumes`."""
    helper_volume: Volume | None = None
    """The first volume with the name of the helper's volume. Its reference is cut."""
    helper_container_image: str = ""
    """The image of the first init container with the helper's name. Cut."""
    has_persistent_volume: bool = False
    """Whether a volume is a persistent volume claim or a generic ephemeral volume."""
    has_metadata: bool = False
    label_count: int = 0
    annotations: Mapping[str, str] | None = None
    """The annotations that podsettle reads. None if the pod does not set `annotations`.

    The text of ANNOTATION_SUMMARY decides nothing, so it is empty here. So is that of
    ANNOTATION_SKIPPED if it is longer than podsettle writes it. The other texts are cut."""
    owner_kinds: tuple[str, ...] = ()
    crio_annotations: tuple[str, ...] = ()
    """The keys of annotations that CRI-O drops unless they are allowed, and of those that activate
    a workload, sorted. Cut, and at most one more than MAX_CRIO_ANNOTATIONS."""

    @property
    def helper_image(self) -> str:
        """The image of the helper that the pod has already. Empty if it has none."""
        volume = self.helper_volume
        if volume is None:
            return ""  # An init container with the helper's name is another one.
        return self.helper_container_image if volume.image is None else volume.image.reference


class NamespaceFacts(WireStruct):
    """The facts about a pod's namespace on which a decision may depend."""

    fixed_selinux_level: bool = False
    """Whether OpenShift gives all pods of the namespace one SELinux level."""
    is_system: bool = False
    """Whether the namespace belongs to the cluster itself, by its name."""


class DecisionInput(WireStruct):
    """All facts about one request on which its decision may depend."""

    pod: PodFacts
    namespace: NamespaceFacts


_SPEC_FIELD_COUNT = len(SpecFields.__struct_fields__)
_CONTAINER_FIELD_COUNT = len(ContainerFields.__struct_fields__)


def facts_of(pod: Pod) -> PodFacts:
    """Return the facts about a pod. Raises one of DECODE_ERRORS for an invalid undecoded field."""
    spec, metadata = pod.spec, pod.metadata
    inits, containers, volumes = spec.init_containers, spec.containers, spec.volumes
    helper_volume: Volume | None = None
    has_persistent_volume = False
    for volume in volumes or ():
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            has_persistent_volume = True
        if volume.name == HELPER and helper_volume is None:
            helper_volume = volume
            if volume.image is not None and len(volume.image.reference) > MAX_REFERENCE_CHARACTERS:
                cut = volume.image.reference[: MAX_REFERENCE_CHARACTERS + 1]
                helper_volume = replace(volume, image=ImageVolume(cut))
    helper_container_image = ""
    for container in inits or ():
        if container.name == HELPER:
            helper_container_image = (container.image or "")[: MAX_REFERENCE_CHARACTERS + 1]
            break
    label_count = 0
    annotations: Mapping[str, str] | None = None
    owner_kinds: tuple[str, ...] = ()
    crio_annotations: tuple[str, ...] = ()
    if metadata is not None:
        if metadata.labels:
            label_count = len(metadata.labels)
        if metadata.annotations is not None:
            received = metadata.annotations
            annotations = {
                key: _annotation_fact(key, received[key])
                for key in _READ_ANNOTATIONS
                if key in received
            }
            crio_annotations = _crio_annotations(received)
        if metadata.owner_references:
            owner_kinds = tuple([owner.kind for owner in metadata.owner_references])
    # One starred tuple, because mypy counts a starred argument as if it had any number of items.
    return PodFacts(
        *(
            *astuple(spec)[:_SPEC_FIELD_COUNT],
            None if inits is None else tuple([_container_facts(c) for c in inits]),
            None if containers is None else tuple([_container_facts(c) for c in containers]),
            None if volumes is None else len(volumes),
            helper_volume,
            helper_container_image,
            has_persistent_volume,
            metadata is not None,
            label_count,
            annotations,
            owner_kinds,
            crio_annotations,
        )
    )


def _crio_annotations(received: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that CRI-O reads. Bounded."""
    found = (key[:MAX_ANNOTATION_CHARACTERS] for key in received if CRIO_KEY.match(key))
    return tuple(sorted(islice(found, MAX_CRIO_ANNOTATIONS + 1)))


def _annotation_fact(key: str, text: str) -> str:
    """Return what a decision may read of an annotation. Bounded in length."""
    if key == ANNOTATION_SUMMARY:
        return ""
    if key == ANNOTATION_SKIPPED:
        return text if len(text) <= _MAX_SKIPPED_CHARACTERS else ""
    if key == ANNOTATION_START_GATE:
        # One character more shows that the text is too long: a part of a list is another list.
        return text[: MAX_ANNOTATION_CHARACTERS + 1]
    return text[:MAX_ANNOTATION_CHARACTERS]


def namespace_facts_of(name: str, *, fixed_selinux_level: bool) -> NamespaceFacts:
    """Return the facts about a namespace."""
    return NamespaceFacts(fixed_selinux_level, name.startswith(SYSTEM_NAMESPACE_PREFIXES))


# This function runs for each container of each review, so it makes as few calls as possible.
def _container_facts(container: Container) -> ContainerFacts:
    """Return the facts about a container. Raises one of DECODE_ERRORS."""
    # msgspec puts the fields of the base class first.
    fields = astuple(container)[:_CONTAINER_FIELD_COUNT]
    command = container.command
    starts_helper = bool(command and command[0] == HELPER_PATH)
    if container.name not in OWN_CONTAINERS and is_sidecar(container):
        return ContainerFacts(*(*fields, None, starts_helper))
    has_mounts = mounts_over_helper = False
    if container.volume_mounts:
        mounts = bytes(container.volume_mounts)
        has_mounts = mounts[0] == _BRACKET or container.has_mounts
        # To decode the mounts takes longer. A JSON escape can hide the name, so a backslash counts.
        # `in` takes four times as long as `rfind` on such texts (CPython 3.13).
        if mounts.rfind(_HELPER_MOUNT_NAME_BYTES) >= 0 or _BACKSLASH in mounts:
            mounts_over_helper = _mounts_over_helper(container)
    if container.volume_devices and not mounts_over_helper:
        mounts_over_helper = _mounts_over_helper(container)
    entrypoint_image = (
        None if command else EntrypointImage(container.image or "", container.has_args)
    )
    own_facts = (command, starts_helper, entrypoint_image, has_mounts, mounts_over_helper)
    return ContainerFacts(*(fields + own_facts))


def _mounts_over_helper(container: Container) -> bool:
    """Return whether the container mounts a volume or a device at the helper's path.

    The kubelet makes relative mount paths absolute. Raises one of DECODE_ERRORS.
    """
    paths = [device.device_path for device in container.devices]
    paths += [mount.mount_path for mount in container.mounts]
    # A client can send a million paths, and to normalize one takes ten times as long as to search.
    return any(
        f"{posixpath.normpath('/' + path.lstrip('/'))}/".startswith(f"{HELPER_MOUNT}/")
        for path in paths
        if _HELPER_MOUNT_NAME in path
    )
