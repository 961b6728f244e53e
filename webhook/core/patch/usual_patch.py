"""The self-check of the operations that most patches consist of.

Each of them can be judged by its path and the received pod alone, if it comes before operations
that shift indices. To apply a patch and to compare the pod before and after takes five times as
long. A patch with another operation is checked in that way (`self_check`). A property test holds
that it allows what is allowed here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from webhook.core.constants import HELPER, MAX_NOTE_BYTES, OWN_ANNOTATIONS, OWN_CONTAINERS
from webhook.core.decision_input import PodFacts
from webhook.core.patch.received_command import ContainerList, received_command
from webhook.core.patch.self_check import Operation, check_note

_ANNOTATIONS = {f"/metadata/annotations/{key.replace('/', '~1')}": key for key in OWN_ANNOTATIONS}
_match_container = re.compile(
    "/spec/(initContainers|containers)/(0|[1-9][0-9]{0,3})/(command|volumeMounts|volumeMounts/-)"
).fullmatch
_FIRST_INIT_CONTAINER = "/spec/initContainers/0"
_MAX_PATHS = 1_024


def is_usual_and_allowed(pod: PodFacts, operations: Sequence[Operation]) -> bool:
    """Return whether a patch applies to a pod and makes only changes that podsettle may make.

    False also stands for a patch that has to be applied to find out. Raises PatchError for a note
    that must not be shown.
    """
    lists = {"initContainers": pod.init_containers or (), "containers": pod.containers or ()}
    paths = set()
    for operation in operations:
        path, is_add, value = operation["path"], operation["op"] == "add", operation.get("value")
        if path in paths or _FIRST_INIT_CONTAINER in paths:
            return False
        paths.add(path)
        place = _parse(path)
        if place is None:
            if not is_add or not _adds_helper(pod, path, value):
                return False
            continue
        where, index, field = place
        if where is None:
            received = pod.annotations
            if not is_add or received is None or type(value) is not str:
                return False
            if field in MAX_NOTE_BYTES and value != received.get(field):
                check_note(field, value)
            continue
        containers = lists[where]
        if index >= len(containers):
            return False
        container = containers[index]
        if container.name in OWN_CONTAINERS:
            return False
        if field == "command":
            if (
                operation["op"] != "replace"
                or not container.command
                or type(value) is not list
                or not value
                or value[-1] != received_command(where, index)
            ):
                return False
        elif (
            not is_add
            or container.omits_command_and_mounts
            or container.has_mounts is not (field == "volumeMounts/-")
            or (field == "volumeMounts" and (type(value) is not list or len(value) != 1))
        ):
            return False
    return True


def _adds_helper(pod: PodFacts, path: str, value: object) -> bool:
    """Return whether `add` appends the helper's volume, or puts its init container first."""
    if path == "/spec/volumes/-":
        is_free = pod.volume_count is not None and pod.helper_volume is None
    else:
        names = {each.name for each in pod.init_containers or ()}
        is_free = (
            path == _FIRST_INIT_CONTAINER
            and pod.init_containers is not None
            and OWN_CONTAINERS.isdisjoint(names)
            and all(each.name != HELPER for each in pod.containers or ())
        )
    return is_free and isinstance(value, dict) and value.get("name") == HELPER


@lru_cache(_MAX_PATHS)
def _parse(path: str) -> tuple[ContainerList | None, int, str] | None:
    """Return what a path names, or None if it is something else.

    It is the list, the index and the field of a container, or no list and an annotation of
    podsettle.
    """
    key = _ANNOTATIONS.get(path)
    if key is not None:
        return None, 0, key
    found = _match_container(path)
    if found is None:
        return None
    where, index, field = found.groups()
    return ("containers" if where == "containers" else "initContainers"), int(index), field
