"""The self-check of a patch: whether it applies and makes only changes that podsettle may make.

Every patch is checked before it is answered or cached. The operations are applied to a copy of the
part of the pod that they may touch. In this part a text, such as the name of a container, stands
for a value that the patch does not touch. An operation that names a path inside such a value does
not apply.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from webhook.core.constants import HELPER, KUBELET_GATE, OWN_ANNOTATIONS, OWN_CONTAINERS
from webhook.core.patch.apply import ApplyError, apply_operations

Operation: TypeAlias = dict[str, Any]
"""One RFC 6902 operation, ready to be encoded."""


class PatchError(Exception):
    """A patch that must not be sent: it does not apply, or it makes a forbidden change."""


def verify_operations(
    before: dict[str, Any], operations: Sequence[Operation], settable_fields: Collection[str]
) -> None:
    """Raise PatchError if the operations do not apply, or make a forbidden change.

    `before` is the part of the pod that the operations may touch. It is not changed.
    """
    after = msgspec.to_builtins(before)
    try:
        apply_operations(after, operations)
    except ApplyError as error:
        raise PatchError(f"patch self-check failed: the patch does not apply: {error}") from error
    verify_patch(before, after, settable_fields)


def verify_patch(
    before: dict[str, Any], after: dict[str, Any], settable_fields: Collection[str]
) -> None:
    """Raise PatchError if `after` differs from `before` by a change that podsettle must not make.

    Allowed changes:

    - podsettle's own annotations;
    - a value of a field of the spec in `settable_fields`, if the pod had none;
    - an appended volume for the helper, and appended volume mounts;
    - a wrapper in front of a command;
    - restart rules of an init container that had no restartPolicy;
    - podsettle's own init containers, with the helper first.

    If podsettle wraps the entrypoint of an image, `before` must contain the entrypoint and its
    arguments as if the pod had set them. The check compares them with `after`.
    """
    old, new = before["spec"], after["spec"]
    _require(after.keys() <= {"metadata", "spec"}, "top-level keys")
    old_metadata, new_metadata = before.get("metadata", {}), after.get("metadata", {})
    _require(new_metadata.keys() <= {"annotations"}, "metadata")
    _require(
        _foreign_annotations(old_metadata.get("annotations"))
        == _foreign_annotations(new_metadata.get("annotations")),
        "foreign annotations",
    )
    _check_fields("/spec", old, new, settable_fields)
    _check_volumes(old.get("volumes", []), new.get("volumes", []))
    old_inits, new_inits = old.get("initContainers", []), new.get("initContainers", [])
    _check_podsettle_init_containers(old_inits, new_inits)
    _check_containers(
        _without_podsettle_containers(old_inits),
        _without_podsettle_containers(new_inits),
        may_restart=True,
    )
    _check_containers(old.get("containers", []), new.get("containers", []))


def _foreign_annotations(annotations: dict[str, str] | None) -> dict[str, str]:
    """Return the annotations that are not podsettle's."""
    return {k: v for k, v in (annotations or {}).items() if k not in OWN_ANNOTATIONS}


_CHECKED_LISTS = frozenset({"/spec/volumes", "/spec/initContainers", "/spec/containers"})
"""The lists that have checks of their own."""


def _check_fields(
    path: str, old: Mapping[str, Any], new: Mapping[str, Any], settable_fields: Collection[str]
) -> None:
    """Check that the fields of an object are unchanged, or set where the pod had none."""
    _require(old.keys() <= new.keys(), path)
    for key, value in new.items():
        field = f"{path}/{key}"
        if field in _CHECKED_LISTS:
            continue
        present = old.get(key)
        if present is None and field in settable_fields:
            continue
        if isinstance(value, dict):
            inner = f"{field}/"
            _require(
                present is not None or any(f.startswith(inner) for f in settable_fields), field
            )
            _check_fields(field, present or {}, value, settable_fields)
        else:
            _require(present == value, field)


def _check_volumes(old: list[Any], new: list[Any]) -> None:
    """Check that the volumes are unchanged, or that the helper's volume is appended."""
    _require(_is_append(old, new), "volumes")
    if len(new) > len(old):
        # The names of the pod's other volumes are unknown here.
        _require(_name_of(new[-1]) == HELPER, "volumes")
        _require(all(_name_of(volume) != HELPER for volume in old), "volumes")


def _check_podsettle_init_containers(old: list[Any], new: list[Any]) -> None:
    """Check that podsettle's init containers are unchanged or inserted once, the helper first."""
    for name in OWN_CONTAINERS:
        before, after = ([c for c in inits if _name_of(c) == name] for inits in (old, new))
        _require(after == before if before else len(after) <= 1, f"init container {name}")
    # The helper keeps its index or moves to index 0. The kubelet gate may stand before the helper,
    # so indices are counted without the gate.
    old_indices, new_indices = _helper_indices(old), _helper_indices(new)
    _require(new_indices in ([], [0], old_indices), "place of the helper")


def _helper_indices(containers: list[Any]) -> list[int]:
    """Return the indices of the containers with the helper's name, counted without the gate."""
    names = [name for name in map(_name_of, containers) if name != KUBELET_GATE]
    return [index for index, name in enumerate(names) if name == HELPER]


def _without_podsettle_containers(containers: list[Any]) -> list[Any]:
    return [container for container in containers if _name_of(container) not in OWN_CONTAINERS]


def _check_containers(old: list[Any], new: list[Any], *, may_restart: bool = False) -> None:
    """Check the changes of containers that are not podsettle's.

    `may_restart` says whether a patch may set restart rules on the containers.
    """
    _require(list(map(_name_of, old)) == list(map(_name_of, new)), "names of containers")
    for before, after in zip(old, new, strict=True):
        name = _name_of(before)
        if isinstance(before, str):
            _require(before == after, f"container {name}")
            continue
        _require(after.keys() <= _CHECKED_KEYS, f"container {name}")
        _check_restart_policy(before, after, may_restart=may_restart)
        _require(before.get("args") == after.get("args"), f"args of {name}")
        command, wrapped = before.get("command"), after.get("command")
        if wrapped is None or command is None:
            _require(wrapped is command, f"command of {name}")
        else:
            _require(wrapped[len(wrapped) - len(command) :] == command, f"command of {name}")
        _require(
            _is_append(before.get("volumeMounts", []), after.get("volumeMounts", [])),
            f"mounts of {name}",
        )


_RESTART_KEYS = frozenset({"restartPolicy", "restartPolicyRules"})
_CHECKED_KEYS = frozenset({"name", "command", "args", "volumeMounts"}) | _RESTART_KEYS
"""The fields of a container that the checked part of a pod holds. A patch must not add others."""


def _check_restart_policy(
    before: dict[str, Any], after: dict[str, Any], *, may_restart: bool
) -> None:
    """Check that the restart fields are unchanged, or set where the container had none."""
    same = all(before.get(key) == after.get(key) for key in _RESTART_KEYS)
    had_none = not any(before.get(key) for key in _RESTART_KEYS)
    newly_set = may_restart and had_none and after.get("restartPolicy") == "Never"
    _require(same or newly_set, f"restartPolicy of {before['name']}")


def _name_of(item: Any) -> str:
    """Return the name of a container or volume. A text is the name itself."""
    name: str = item if isinstance(item, str) else item["name"]
    return name


def _is_append(old: list[Any], new: Any) -> bool:
    """Return whether a list is unchanged or has one more item at its end."""
    return bool(new[: len(old)] == old and len(new) <= len(old) + 1)


def _require(condition: bool, subject: str) -> None:
    """Raise PatchError if a condition is false. `subject` names the part that would change."""
    if not condition:
        raise PatchError(f"patch self-check failed: {subject} would change")
