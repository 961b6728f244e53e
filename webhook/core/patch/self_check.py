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

from webhook.core.constants import (
    ANNOTATION_SUMMARY,
    GATES,
    HELPER,
    MAX_NOTE_BYTES,
    OWN_ANNOTATIONS,
    OWN_CONTAINERS,
)
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
    after = msgspec.to_builtins(before, builtin_types=(msgspec.Raw,))
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

    - podsettle's own annotations; those for people are short and without control characters;
    - a value of a field of the spec in `settable_fields`, if the pod had none;
    - an appended volume for the helper, and appended volume mounts;
    - a wrapper in front of a command;
    - restart rules of an init container that had no restartPolicy;
    - podsettle's own init containers, with the helper first.

    If podsettle wraps the entrypoint of an image, `before` must contain the entrypoint and its
    arguments as if the pod had set them. The check compares them with `after`.
    """
    if not after.keys() <= _TOP_LEVEL_KEYS:
        raise _forbidden("top-level keys")
    _check_metadata(before.get("metadata", {}), after.get("metadata", {}))
    old, new = before["spec"], after["spec"]
    _check_fields("/spec", old, new, settable_fields)
    _check_volumes(old.get("volumes", []), new.get("volumes", []))
    _check_init_containers(
        old.get("initContainers", []), new.get("initContainers", []), old.get("containers", [])
    )
    _check_containers(old.get("containers", []), new.get("containers", []), may_restart=False)


_TOP_LEVEL_KEYS = frozenset({"metadata", "spec"})
_METADATA_KEYS = frozenset({"annotations"})
_CHECKED_LISTS = frozenset({"/spec/volumes", "/spec/initContainers", "/spec/containers"})
"""The lists that have checks of their own."""


def _check_metadata(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Check that only podsettle's own annotations are changed."""
    if not new.keys() <= _METADATA_KEYS:
        raise _forbidden("metadata")
    received, patched = old.get("annotations") or {}, new.get("annotations") or {}
    for key in (received.keys() | patched.keys()) - OWN_ANNOTATIONS:
        if received.get(key) != patched.get(key):
            raise _forbidden("foreign annotations")
    for key in MAX_NOTE_BYTES:
        note = patched.get(key, "")
        if note != received.get(key, ""):
            check_note(key, note)


def check_note(key: str, note: str) -> None:
    """Raise PatchError if an annotation for people is too long, or cannot be shown to them."""
    # `kubectl describe` prints the text to a terminal, which executes control characters.
    is_shown_whole = note.isprintable() or (
        key == ANNOTATION_SUMMARY and note.replace("\n", "").isprintable()
    )
    if not is_shown_whole:
        raise PatchError(f"patch self-check failed: {key} has control characters")
    if len(note.encode()) > MAX_NOTE_BYTES[key]:
        max_bytes = len(key) + MAX_NOTE_BYTES[key]
        raise PatchError(f"patch self-check failed: {key} exceeds {max_bytes} bytes")


def _check_fields(
    path: str, old: Mapping[str, Any], new: Mapping[str, Any], settable_fields: Collection[str]
) -> None:
    """Check that the fields of an object are unchanged, or set where the pod had none."""
    if not old.keys() <= new.keys():
        raise _forbidden(path)
    for key, value in new.items():
        present = old.get(key)
        if present == value:
            continue
        field = f"{path}/{key}"
        if field in _CHECKED_LISTS or (present is None and field in settable_fields):
            continue
        if present is None:
            inner = f"{field}/"
            if not any(path.startswith(inner) for path in settable_fields):
                raise _forbidden(field)
            present = {}
        if not isinstance(value, dict) or not isinstance(present, dict):
            raise _forbidden(field)
        _check_fields(field, present, value, settable_fields)


def _check_volumes(old: list[Any], new: list[Any]) -> None:
    """Check that the volumes are unchanged, or that the helper's volume is appended."""
    if not _is_append(old, new):
        raise _forbidden("volumes")
    if len(new) > len(old):
        # The names of the pod's other volumes are unknown here.
        names = _names_of(new)
        if names.pop() != HELPER or HELPER in names:
            raise _forbidden("volumes")


def _check_init_containers(old: list[Any], new: list[Any], regular: list[Any]) -> None:
    """Check the changes of init containers.

    podsettle's own are unchanged or inserted once, the helper first. None is inserted with the name
    of a regular container, because the API server would reject the pod.
    """
    old_names = _names_of(old)
    new_names = _names_of(new)
    for own in OWN_CONTAINERS:
        if own in old_names:
            if _select(own, old, old_names) != _select(own, new, new_names):
                raise _forbidden("an init container of podsettle")
        elif own in new_names and (new_names.count(own) > 1 or own in _names_of(regular)):
            raise _forbidden("an init container of podsettle")
    if HELPER in new_names:
        # The helper keeps its index or moves to index 0. Gates may stand before it, so indices are
        # counted without the gates.
        indices = _helper_indices(new_names)
        if indices != [0] and indices != _helper_indices(old_names):
            raise _forbidden("place of the helper")
    _check_containers(_without_own(old, old_names), _without_own(new, new_names), may_restart=True)


def _select(own: str, items: list[Any], names: list[str]) -> list[Any]:
    """Return the containers with a name."""
    return [item for item, name in zip(items, names, strict=True) if name == own]


def _without_own(items: list[Any], names: list[str]) -> list[Any]:
    """Return the containers that are not podsettle's."""
    if OWN_CONTAINERS.isdisjoint(names):
        return items
    return [item for item, name in zip(items, names, strict=True) if name not in OWN_CONTAINERS]


def _helper_indices(names: list[str]) -> list[int]:
    """Return the indices of the containers with the helper's name, counted without the gates."""
    if not GATES.isdisjoint(names):
        names = [name for name in names if name not in GATES]
    return [index for index, name in enumerate(names) if name == HELPER]


def _check_containers(old: list[Any], new: list[Any], *, may_restart: bool) -> None:
    """Check the changes of containers that are not podsettle's.

    `may_restart` says whether a patch may set restart rules on the containers.
    """
    if len(old) != len(new):
        raise _forbidden("names of containers")
    if old != new:
        for before, after in zip(old, new, strict=True):
            if before != after:
                _check_container(before, after, may_restart)


def _check_container(before: Any, after: Any, may_restart: bool) -> None:
    """Check the changes of one container that is not podsettle's."""
    if isinstance(before, str) or isinstance(after, str):
        raise _forbidden("a container without edits")
    name = before["name"]
    if after["name"] != name:
        raise _forbidden("names of containers")
    if not before.keys() <= after.keys() <= _CHECKED_KEYS:
        raise _forbidden(f"container {name}")
    received = before.get
    for key, value in after.items():
        old = received(key)
        if value == old:
            continue
        if key == "command":
            if old is None or value[len(value) - len(old) :] != old:
                raise _forbidden(f"command of {name}")
        elif key == "volumeMounts":
            if not _is_append(old or [], value):
                raise _forbidden(f"mounts of {name}")
        elif key == "args":
            raise _forbidden(f"args of {name}")
        elif (
            not may_restart
            or received("restartPolicy")
            or received("restartPolicyRules")
            or after.get("restartPolicy") != "Never"
        ):
            raise _forbidden(f"restartPolicy of {name}")


_CHECKED_KEYS = frozenset(
    {"name", "command", "args", "volumeMounts", "restartPolicy", "restartPolicyRules"}
)
"""The fields of a container that the checked part of a pod holds. A patch must not add others."""


def _names_of(items: list[Any]) -> list[str]:
    """Return the names of containers or volumes. A text is the name itself."""
    return [item if type(item) is str else item["name"] for item in items]


def _is_append(old: list[Any], new: list[Any]) -> bool:
    """Return whether a list is unchanged or has one more item at its end."""
    return new[: len(old)] == old and len(new) <= len(old) + 1


def _forbidden(subject: str) -> PatchError:
    """Return the error for a change. `subject` names the part that would change."""
    return PatchError(f"patch self-check failed: {subject} would change")
