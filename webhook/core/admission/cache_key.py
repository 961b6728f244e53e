"""What of a pod a decision may rest on: pods of one template are alike in all of it.

What differs from one pod of a template to the next decides nothing: arguments, the names of pods,
volumes and mounts, what labels there are, the annotations of others, scripts that Tekton names anew
for each sidecar. Nor does what differs from build to build, the image of a container that has a
command. A field that a remedy begins to read and that is left out here is one that it never sees.
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
from webhook.core.pod import UNSET, Container, ObjectMeta, Pod, is_sidecar, may_mount_helper_path

_READ_ANNOTATIONS = OWN_ANNOTATIONS | {ANNOTATION_MIRROR, ANNOTATION_SKIP}
_BRACKET = ord("[")
_SO_MANY = tuple({str(n): "" for n in range(number)} for number in range(32))
"""Labels of which only the number is left: what they say has chosen the plan already."""
_MOUNTED = Raw(b"[]")
"""Mounts, none of them where the helper goes."""


def likeness(pod: Pod, *, wraps_containers: bool) -> Pod:
    """What of a pod a decision may rest on, itself a pod.

    Of the one that is given the spec is used up; the metadata stay as they are.

    Without `wraps_containers`, what regular containers start does not matter either. How long the
    annotations of others are is lost.
    """
    spec = pod.spec
    for container in spec.init_containers or ():
        _reduce(container)
    for container in spec.containers or ():
        if wraps_containers:
            _reduce(container)
        else:
            container.image = container.command = None
            container.args = container.volume_mounts = container.volume_devices = UNSET
    for volume in spec.volumes or ():
        if volume.name != HELPER:
            volume.name = ""
    received = pod.metadata
    if received is None:
        return Pod(spec)
    annotations, labels = received.annotations, received.labels
    if annotations:
        known = _READ_ANNOTATIONS.intersection(annotations)
        annotations = {key: annotations[key] for key in known} if known else {}
    if labels:
        number = len(labels)
        labels = _SO_MANY[number] if number < len(_SO_MANY) else dict.fromkeys(labels, "")
    owners = received.owner_references
    return Pod(spec, ObjectMeta(owner_references=owners, annotations=annotations, labels=labels))


def _reduce(container: Container) -> None:
    # Read only where an image is known, and then nothing is remembered.
    container.args = UNSET
    if container.command:
        # Only what starts by its image is asked for that.
        container.image = None
    mounts = container.volume_mounts
    if mounts:
        raw = bytes(mounts)
        if raw[0] == _BRACKET and not may_mount_helper_path(raw):
            container.volume_mounts = _MOUNTED
    if is_sidecar(container) and container.name not in OWN_CONTAINERS:
        container.image = None
        # Whether the helper has to be there before it is all that is asked of a sidecar.
        helped = container.command and container.command[0] == HELPER_PATH
        container.command = [HELPER_PATH] if helped else None
