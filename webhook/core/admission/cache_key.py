"""The decision cache key: a pod, reduced to the fields that decisions depend on.

WARNING: remedies see only the fields that this module keeps. If a remedy reads another field, this
module must keep that field too.

The key omits fields that differ between pods of one template: arguments, the names of pods, volumes
and mounts, the keys and values of labels, foreign annotations, and the scripts that Tekton renames
for each sidecar. The image of a container with a command is omitted too, because it differs
between builds.
"""

from __future__ import annotations

from msgspec import Raw

from webhook.core.constants import (
    ANNOTATION_MIRROR,
    ANNOTATION_SKIP,
    HELPER,
    HELPER_PATH,
    OWN_ANNOTATIONS,
    OWN_CONTAINERS,
)
from webhook.core.pod import (
    UNSET,
    Container,
    ObjectMeta,
    Pod,
    is_sidecar,
    may_mount_helper_path,
)

_READ_ANNOTATIONS = OWN_ANNOTATIONS | {ANNOTATION_MIRROR, ANNOTATION_SKIP}
_BRACKET = ord("[")
_PLACEHOLDER_LABELS = tuple({str(n): "" for n in range(count)} for count in range(32))
"""For each number of labels, labels that replace those of the pod. After the policies are matched,
a decision depends only on the number."""
_OPAQUE_MOUNTS = Raw(b"[]")
"""The value that replaces all lists of mounts without the helper's path."""


def key_pod_of(pod: Pod, *, wraps_containers: bool) -> Pod:
    """Return the pod with only the fields that decisions depend on.

    `wraps_containers` says whether a remedy may wrap regular containers. If not, their commands and
    images are omitted too. The result shares the spec with the received pod. **The spec is
    mutated**, but the metadata is not.
    """
    spec = pod.spec
    for container in spec.init_containers or ():
        _reduce_container(container)
    for container in spec.containers or ():
        if wraps_containers:
            _reduce_container(container)
        else:
            container.image = container.command = None
            container.args = container.volume_mounts = container.volume_devices = UNSET
    for volume in spec.volumes or ():
        if volume.name != HELPER:
            volume.name = ""
    metadata = pod.metadata
    if metadata is None:
        return Pod(spec)
    annotations, labels = metadata.annotations, metadata.labels
    if annotations:
        read = _READ_ANNOTATIONS.intersection(annotations)
        annotations = {key: annotations[key] for key in read} if read else {}
    if labels:
        count = len(labels)
        placeholders = _PLACEHOLDER_LABELS
        labels = placeholders[count] if count < len(placeholders) else dict.fromkeys(labels, "")
    owners = metadata.owner_references
    return Pod(spec, ObjectMeta(owner_references=owners, annotations=annotations, labels=labels))


def _reduce_container(container: Container) -> None:
    """Remove the fields of a container on which decisions do not depend."""
    # Remedies read arguments only if the image was looked up. Decisions that use the results of
    # look-ups are not cached.
    container.args = UNSET
    if container.command:
        # The image is read only if the container has no command.
        container.image = None
    mounts = container.volume_mounts
    if mounts:
        raw = bytes(mounts)
        if raw[0] == _BRACKET and not may_mount_helper_path(raw):
            container.volume_mounts = _OPAQUE_MOUNTS
    if is_sidecar(container) and container.name not in OWN_CONTAINERS:
        container.image = None
        # Remedies read only whether a sidecar's command starts with the helper.
        starts_helper = container.command and container.command[0] == HELPER_PATH
        container.command = [HELPER_PATH] if starts_helper else None
