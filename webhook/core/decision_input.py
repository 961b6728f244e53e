"""Everything that a decision may depend on, apart from the plan and the cluster.

Remedies receive these structs, and never the pod itself. The encoded DecisionInput is the key of
the decision cache, so a decision cannot depend on a field that its key omits. If a remedy reads a
further field, the type check fails until that field is declared: in `SpecFields` or
`ContainerFields` if remedies read it as it is, otherwise here.

The facts omit what differs between pods of one template: arguments (apart from what
`ContainerFacts` names), commands after their first string, the names of pods, volumes and mounts,
the keys and values of labels, annotations of others, and the scripts that Tekton renames for each
sidecar. The image of a container with a command is omitted too, because it differs between builds.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import astuple, replace

from webhook.core.command_line import (
    INIT,
    SYSTEMD,
    helper_index,
    own_strings,
    starts_init,
    traps_interrupt,
    with_texts_split,
    wrapper_index,
)
from webhook.core.constants import (
    ANNOTATION_SKIP,
    ANNOTATION_SKIPPED,
    ANNOTATION_START_GATE,
    ANNOTATION_SUMMARY,
    GATES,
    HELPER,
    HELPER_IN_IMAGE,
    HELPER_MOUNT,
    HELPER_PATH,
    MAX_NOTE_BYTES,
    OWN_ANNOTATIONS,
    OWN_CONTAINERS,
    SCRIPT_NAME,
    SYSTEM_NAMESPACE_PREFIXES,
    WAIT,
)
from webhook.core.images import MAX_REFERENCE_CHARACTERS
from webhook.core.pod import (
    DECODE_ERRORS,
    Container,
    ContainerFields,
    ImageVolume,
    Pod,
    SpecFields,
    Volume,
    VolumeMount,
    WireStruct,
    is_sidecar,
)

_HELPER_MOUNT_NAME = HELPER_MOUNT.strip("/")
_HELPER_MOUNT_NAME_BYTES = _HELPER_MOUNT_NAME.encode()
_BRACKET, _BACKSLASH = b"[\\"
_INIT, _SYSTEMD = INIT.encode(), SYSTEMD.encode()
_OWN_NAME = SCRIPT_NAME.encode()
"""A part of every wrapper."""
MAX_WRAPPER_STRINGS = 72
"""The number of strings that are read from the first wrapper of podsettle on. podsettle writes at
most two wrappers of eight strings."""
READ_ANNOTATIONS = OWN_ANNOTATIONS | {ANNOTATION_SKIP, ANNOTATION_START_GATE}
MAX_ANNOTATION_CHARACTERS = 4096
"""The number of characters of an annotation that are read. podsettle writes at most some hundred. A
client can send megabytes, which a patch would copy."""

CRIO_ANNOTATION = re.compile(
    r"(?:io\.kubernetes\.cri-o\.|(?:[a-z0-9-]+\.)+crio\.io(?:[./]|$)"
    r"|seccomp-profile\.kubernetes\.cri-o\.io|io\.containers\.trace-syscall"
    r"|io\.kubernetes\.cri\.(?:rdt-class|container-type)|org\.opencontainers\.image\.stopSignal"
    r"|bundle|org\.systemd\.property\.|org\.criu\.config|module\.wasm\.image/variant|run\.oci\.)",
    re.ASCII,
)
"""The annotations that CRI-O drops unless the handler or workload allows them
(`AllAllowedAnnotations` in cri-o `pkg/annotations/v2`, and the names of earlier releases)."""
# With them, pods activate the workloads of OpenShift: for builds, for containers in containers, and
# for workload partitioning; and the example of CRI-O's own configuration file.
_CRIO_WORKLOAD = r"io\.openshift\.[^/]+$|target\.workload\.openshift\.io/|io\.crio/"
CRIO_KEY = re.compile(f"(?:{CRIO_ANNOTATION.pattern}|{_CRIO_WORKLOAD})", re.ASCII)
"""The annotations that decide what CRI-O does with a pod: CRIO_ANNOTATION, and those that activate
a workload. One pattern, because it is matched with each annotation of each review."""
_ISTIO_MODE, _AMBIENT_MODES = "istio.io/dataplane-mode", {"ambient": True, "none": False}
_CILIUM_ZTUNNEL = "io.cilium/mtls-enabled"
"""With this label, Cilium 1.19 and later put the pods of a namespace behind Istio's ztunnel too."""
_FARGATE_PROFILE = "eks.amazonaws.com/fargate-profile"
_CONSUL_REDIRECT, _APP_MESH_REDIRECT, _APP_MESH_PLUGIN, _MULTUS_NETWORKS = (
    "consul.hashicorp.com/redirect-traffic-config",
    "appmesh.k8s.aws/proxyEgressPort",
    "appmesh.k8s.aws/appmeshCNI",
    "k8s.v1.cni.cncf.io/networks",
)
"""The annotations that tell a CNI plugin to redirect a pod's connections. Consul's injector writes
the first one, and App Mesh's the second one, only if the plugin is in use. The author of a pod asks
for App Mesh's plugin with the third one (consul-k8s `connect-inject/webhook/mesh_webhook.go`,
aws-app-mesh-controller-for-k8s `pkg/inject/{cni_proxy,proxy}.go`). The fourth one lists networks.
OpenShift Service Mesh 2 has no init container, and adds the network of Istio's plugin to them
(maistra/istio-operator `injection-template.yaml`)."""
_MAX_GATE_ARGS_BYTES = 8 * 1024
"""The maximum length of the arguments of a gate that are read. Those of podsettle are shorter."""
MAX_CRIO_ANNOTATIONS = 32
"""The number of annotations for CRI-O that are read. A pod has a few. A client can send any
number."""
_match_crio_key = CRIO_KEY.match


class EntrypointImage(WireStruct):
    """The image whose entrypoint a container without a command starts."""

    reference: str = ""
    has_args: bool = False
    """Whether the container sets `args`, which replace the Cmd of the image."""
    is_on_node: bool = False
    """Whether the image is never pulled, so that only the node knows what it is."""


class ContainerFacts(ContainerFields):
    """The facts about a container on which a decision may depend."""

    command: Sequence[str] | None = None
    """The first string of the command, or a whole command that may contain a wrapper of podsettle.

    None for a sidecar that is not podsettle's own. The command of an init container of podsettle is
    whole too. It begins with the helper, even if another webhook has put a program in front."""
    starts_helper: bool = False
    """Whether the container starts the helper at its path."""
    entrypoint_image: EntrypointImage | None = None
    """None if the container has a command, and for a sidecar that is not podsettle's own."""
    has_mounts: bool = False
    """Whether the container sets `volumeMounts`. False for a sidecar that is not podsettle's."""
    mounts_over_helper: bool = False
    """Whether the container mounts a volume or a device at the helper's path. False for a sidecar
    that is not podsettle's."""
    mounts_helper: bool = False
    """Whether such a mount is one of podsettle's. A container has it without a wrapper if another
    program has copied the mounts, or replaced the command."""
    inner_wrapper: tuple[str, ...] = ()
    """The command and arguments from podsettle's wrapper on, if the wrapper is not at the beginning
    of `command` alone: another webhook has put a program in front, or joined a command into a text,
    which is split here. Cut. Of an init container of podsettle, its command if another program
    starts it. To find wrappers, `inner_wrapper or command or ()` has to be read."""
    traps_interrupt: bool = False
    """Whether a string of the command or an argument looks like a script that traps INT or QUIT.
    False if the command is no shell."""
    starts_init: bool = False
    """Whether the command or an argument starts what works only as process 1, such as `/init`."""
    gate_args: tuple[str, ...] = ()
    """What follows the helper in a container with the name of a gate: its command, such as `wait`,
    and its options. Empty if the helper is not started, or if the arguments are too long."""

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
    helper_image: str = ""
    """The image of the helper that the pod has already. Empty if it has none. Cut."""
    has_persistent_volume: bool = False
    """Whether a container mounts a persistent volume (`Volume.is_persistent`)."""
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
    asks_plugin_to_redirect: bool = False
    """Whether annotations tell the CNI plugin of a service mesh to redirect connections."""
    is_ambient: bool | None = None
    """Whether the pod's label puts it into Istio's ambient mode. None if no label decides."""
    is_on_fargate: bool = False
    """Whether the pod has the label that EKS gives to all pods of its Fargate profiles."""

    @property
    def all_containers(self) -> tuple[ContainerFacts, ...]:
        """The init containers and the regular ones."""
        return (*(self.init_containers or ()), *(self.containers or ()))


class NamespaceFacts(WireStruct):
    """The facts about a pod's namespace on which a decision may depend."""

    fixed_selinux_level: bool = False
    """Whether OpenShift gives all pods of the namespace one SELinux level."""
    is_system: bool = False
    """Whether the namespace belongs to the cluster itself, by its name."""
    is_ambient: bool = False
    """Whether a label of the namespace puts its pods behind ztunnel, as in Istio's ambient mode."""


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
    persistent: list[str] = []
    for volume in volumes or ():
        if volume.is_persistent:
            persistent.append(volume.name)
        if volume.name == HELPER and helper_volume is None:
            helper_volume = volume
            if volume.image is not None and len(volume.image.reference) > MAX_REFERENCE_CHARACTERS:
                cut = volume.image.reference[: MAX_REFERENCE_CHARACTERS + 1]
                helper_volume = replace(volume, image=ImageVolume(cut))
    # `isdisjoint` decodes mounts up to the first one that is persistent.
    has_persistent_volume = bool(persistent) and not set(persistent).isdisjoint(
        spec.mounted_names()
    )
    helper_image = ""
    if helper_volume is not None:  # Else an init container with the helper's name is another one.
        source = helper_volume.image
        copies = (each.image or "" for each in inits or () if each.name == HELPER)
        helper_image = next(copies, "") if source is None else source.reference
        helper_image = helper_image[: MAX_REFERENCE_CHARACTERS + 1]
    label_count = 0
    annotations: Mapping[str, str] | None = None
    owner_kinds: tuple[str, ...] = ()
    crio_annotations: tuple[str, ...] = ()
    asks_plugin_to_redirect = False
    is_ambient: bool | None = None
    is_on_fargate = False
    if metadata is not None:
        if metadata.labels:
            label_count = len(metadata.labels)
            is_ambient = _AMBIENT_MODES.get(metadata.labels.get(_ISTIO_MODE, ""))
            is_on_fargate = _FARGATE_PROFILE in metadata.labels
        if metadata.annotations is not None:
            received = metadata.annotations
            annotations = {}
            if not READ_ANNOTATIONS.isdisjoint(received):  # As in few pods.
                found = sorted(received.keys() & READ_ANNOTATIONS)
                annotations = {key: _annotation_fact(key, received[key]) for key in found}
            crio_annotations = _crio_annotations(received)
            asks_plugin_to_redirect = (
                _CONSUL_REDIRECT in received
                or _APP_MESH_REDIRECT in received
                or received.get(_APP_MESH_PLUGIN, "")[:10].lower() == "enabled"
                or "istio-cni" in received.get(_MULTUS_NETWORKS, "")
            )
        if metadata.owner_references:
            owner_kinds = tuple([owner.kind for owner in metadata.owner_references])
    # One starred tuple, because mypy counts a starred argument as if it had any number of items.
    return PodFacts(
        *(
            *astuple(spec)[:_SPEC_FIELD_COUNT],
            None if inits is None else tuple([_container_facts(c, False) for c in inits]),
            None if containers is None else tuple([_container_facts(c, True) for c in containers]),
            None if volumes is None else len(volumes),
            helper_volume,
            helper_image,
            has_persistent_volume,
            metadata is not None,
            label_count,
            annotations,
            owner_kinds,
            crio_annotations,
            asks_plugin_to_redirect,
            is_ambient,
            is_on_fargate,
        )
    )


def _crio_annotations(received: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that CRI-O reads. Bounded."""
    found = list(filter(_match_crio_key, received))
    if not found:
        return ()
    kept = found[: MAX_CRIO_ANNOTATIONS + 1]
    return tuple(sorted([key[:MAX_ANNOTATION_CHARACTERS] for key in kept]))


def _annotation_fact(key: str, text: str) -> str:
    """Return what a decision may read of an annotation. Bounded in length."""
    if key == ANNOTATION_SUMMARY:
        return ""
    if key == ANNOTATION_SKIPPED:
        return text if len(text) <= MAX_NOTE_BYTES[ANNOTATION_SKIPPED] else ""
    if key == ANNOTATION_START_GATE:
        # One character more shows that the text is too long: a part of a list is another list.
        return text[: MAX_ANNOTATION_CHARACTERS + 1]
    return text[:MAX_ANNOTATION_CHARACTERS]


def namespace_facts_of(
    name: str, labels: Mapping[str, str], *, fixed_selinux_level: bool
) -> NamespaceFacts:
    """Return the facts about a namespace."""
    return NamespaceFacts(
        fixed_selinux_level,
        name.startswith(SYSTEM_NAMESPACE_PREFIXES),
        labels.get(_CILIUM_ZTUNNEL) == "true"
        or _AMBIENT_MODES.get(labels.get(_ISTIO_MODE, ""), False),
    )


# This function runs for each container of each review, so it makes as few calls as possible.
def _container_facts(container: Container, is_regular: bool) -> ContainerFacts:
    """Return the facts about a container. Raises one of DECODE_ERRORS."""
    # msgspec puts the fields of the base class first.
    fields = astuple(container)[:_CONTAINER_FIELD_COUNT]
    command, raw_mounts, raw_args = container.command, container.volume_mounts, container.args
    starts_helper = bool(command and command[0] == HELPER_PATH)
    is_own = container.name in OWN_CONTAINERS
    if not is_own and is_sidecar(container, is_regular=is_regular):
        return ContainerFacts(*(*fields, None, starts_helper))
    has_mounts = mounts_over_helper = False
    if raw_mounts:
        mounts = bytes(raw_mounts)
        has_mounts = mounts[0] == _BRACKET or container.has_mounts
        # To decode the mounts takes longer. A JSON escape can hide the name, so a backslash counts.
        # `in` and `find` take longer than `rfind` on such texts (CPython 3.13).
        if mounts.rfind(_HELPER_MOUNT_NAME_BYTES) >= 0 or _BACKSLASH in mounts:
            mounts_over_helper = _mounts_over_helper(container)
    if container.volume_devices and not mounts_over_helper:
        mounts_over_helper = _mounts_over_helper(container)
    mounts_helper = mounts_over_helper and _mounts_helper(container)
    mount_facts = (has_mounts, mounts_over_helper, mounts_helper)
    entrypoint_image = None
    if not command:
        is_on_node = container.image_pull_policy == "Never"
        entrypoint_image = EntrypointImage(container.image or "", container.has_args, is_on_node)
    if is_own:
        read = (command, starts_helper, entrypoint_image, *mount_facts)
        return _with_own_arguments(ContainerFacts(*(fields + read)), container)
    traps = may_be_inside = is_init = False
    # Only a shell sets traps. The command of the image may be one.
    may_trap = not command or command[0][-2:] == "sh"
    if command and len(command) > 1:
        joined = "".join(command)
        may_be_inside = SCRIPT_NAME in joined
        is_init = (INIT in joined or SYSTEMD in joined) and starts_init(command)
        if may_trap:
            traps = traps_interrupt(command)
    if raw_args:
        args = bytes(raw_args)
        may_be_inside = may_be_inside or args.rfind(_OWN_NAME) >= 0
        if may_trap and not traps and args.rfind(b"trap") >= 0:
            traps = traps_interrupt(container.decoded_args)
        if not is_init and (args.rfind(_INIT) >= 0 or args.rfind(_SYSTEMD) >= 0):
            is_init = starts_init([*(command or ()), *container.decoded_args])
    inner_wrapper: tuple[str, ...] = ()
    if may_be_inside or starts_helper:
        inner_wrapper = _inner_wrapper(container)
        starts_helper = starts_helper or helper_index(inner_wrapper) is not None
        if command and not inner_wrapper and wrapper_index(command) is None:
            command = command[:1]  # It only names podsettle.
    elif command:
        command = command[:1]
    read = (command, starts_helper, entrypoint_image, *mount_facts)
    if inner_wrapper or traps or is_init:
        return ContainerFacts(*(*fields, *read, inner_wrapper, traps, is_init))
    return ContainerFacts(*(fields + read))


def _with_own_arguments(facts: ContainerFacts, container: Container) -> ContainerFacts:
    """Return the facts about a container with the name of one of podsettle's own.

    Raises one of DECODE_ERRORS.
    """
    command = container.command
    if command and command[0] not in (HELPER_IN_IMAGE, HELPER_PATH):
        inner_wrapper = tuple(_own_command(container))
        facts = replace(facts, command=[*inner_wrapper] or command, inner_wrapper=inner_wrapper)
    if container.name not in GATES:
        return facts
    if command and command[0] == HELPER_IN_IMAGE:  # WAIT may have moved to the arguments.
        facts = replace(facts, command=_own_command(container))
    return replace(facts, gate_args=_gate_args(container))


def _gate_args(container: Container) -> tuple[str, ...]:
    """Return `ContainerFacts.gate_args` of a container with the name of a gate.

    Raises one of DECODE_ERRORS.
    """
    if len(container.args) > _MAX_GATE_ARGS_BYTES:
        return ()
    strings = own_strings([*(container.command or ()), *container.decoded_args])
    if HELPER_IN_IMAGE not in strings:
        return ()
    return tuple(strings[len(strings) - strings[::-1].index(HELPER_IN_IMAGE) :])


def wrapped_command_of(container: Container) -> Sequence[str]:
    """Return what to read to find the wrappers of a container that is not podsettle's own.

    Arguments that are no list of strings are not read.
    """
    try:
        return _inner_wrapper(container) or container.command or ()
    except DECODE_ERRORS:
        return container.command or ()


def _inner_wrapper(container: Container) -> tuple[str, ...]:
    """Return `ContainerFacts.inner_wrapper` of a container that is not podsettle's own.

    Raises one of DECODE_ERRORS.
    """
    command = container.command or []
    received = [*command, *container.decoded_args]
    strings = with_texts_split(received, mounts_helper=_mounts_over_helper(container))
    index = wrapper_index(strings)
    if index is None:
        return ()
    if index == 0 and strings is received and bytes(container.args).find(_OWN_NAME) < 0:
        is_split = command[0] == HELPER_PATH and "--" not in command
        if not is_split:
            return ()
    return tuple(strings[index : index + MAX_WRAPPER_STRINGS])


def gate_command_of(container: Container) -> Sequence[str]:
    """Return the command of a gate, wherever another webhook has moved it.

    Arguments that are no list of strings are not read.
    """
    try:
        return _own_command(container) or container.command or ()
    except DECODE_ERRORS:
        return container.command or ()


def _own_command(container: Container) -> list[str]:
    """Return the command of an init container of podsettle, as podsettle wrote it.

    Another program may start it. The result begins and ends with the helper, or ends with WAIT. It
    is empty if the helper is not started. Raises one of DECODE_ERRORS.
    """
    strings = own_strings([*(container.command or ()), *container.decoded_args])
    if HELPER_IN_IMAGE not in strings:
        return []
    start = strings.index(HELPER_IN_IMAGE)
    own = [*strings[start : start + MAX_WRAPPER_STRINGS]]
    end = len(own) - own[::-1].index(HELPER_IN_IMAGE)
    return own[: end + 1] if own[end : end + 1] == [WAIT] else own[:end]


def _mounts_helper(container: Container) -> bool:
    """Return whether the container mounts the helper's volume as podsettle does.

    Raises one of DECODE_ERRORS.
    """
    return VolumeMount(HELPER, HELPER_MOUNT) in container.mounts


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
