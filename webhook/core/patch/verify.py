"""The self-check: a patch is answered once it was seen to apply, and to do nothing else.

Whether it does hangs on shapes alone: which of its parents the pod has, which paths it names. A
value cannot matter, since `patch` builds each in such a way that it holds what was there. So the
patch is applied to the part of the pod that it may touch (`jsonpatch`) the first time that a shape
turns up. A cluster has a few hundred of them, and every later patch of that shape is proven.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import jsonpatch

from webhook.core.constants import HELPER, KUBELET_GATE, OWN_ANNOTATIONS, OWN_CONTAINERS

_MOST_PARTS = 50_000
"""Of all shapes that are remembered: some 10 MB. A cluster has a few thousand."""

Shape: TypeAlias = tuple[Hashable, ...]


class PatchError(Exception):
    """A patch that must not be answered: it does not apply, or it does what it should not."""


class VerifiedShapes:
    """The shapes that were seen to do what they should."""

    def __init__(self) -> None:
        self._shapes: set[Shape] = set()
        self._parts = 0

    def __contains__(self, shape: Shape) -> bool:
        return shape in self._shapes

    def add(
        self, shape: Shape, before: dict[str, Any], operations: Sequence[dict[str, Any]]
    ) -> None:
        """Apply the operations to `before`, the part of a pod that they may touch, and look.

        Their shape is proven then. Raises PatchError.
        """
        try:
            after = jsonpatch.apply_patch(before, operations)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise PatchError(f"the patch does not apply: {error}") from error
        verify_patch(before, after)
        parts = sum(len(part) if isinstance(part, tuple) else 1 for part in shape)
        self._parts += parts
        if self._parts > _MOST_PARTS:
            # Who makes up pods to fill memory gets no further.
            self._shapes.clear()
            self._parts = parts
        self._shapes.add(shape)


def verify_patch(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Raise PatchError where `after` differs from `before` in a way that podsettle must not cause.

    Allowed: own annotations; a runtimeClassName or a seLinuxChangePolicy where there was none;
    appended volumes and mounts; a wrapper in front of a command; restart rules of an init container
    that had no restartPolicy; podsettle's own init containers, the helper first. What a container
    without a command has from its image is in `before` as if the pod had said it.
    """
    old, new = before["spec"], after["spec"]
    _require(after.keys() <= {"metadata", "spec"}, "top-level keys")
    old_metadata, new_metadata = before.get("metadata", {}), after.get("metadata", {})
    _require(new_metadata.keys() <= {"annotations"}, "metadata")
    _require(
        new.keys()
        <= {"runtimeClassName", "securityContext", "volumes", "initContainers", "containers"},
        "spec keys",
    )
    _require(
        _foreign(old_metadata.get("annotations")) == _foreign(new_metadata.get("annotations")),
        "annotations of others",
    )
    _require(_is_kept("runtimeClassName", old, new), "runtimeClassName")
    _require(_extends(old.get("volumes", []), new.get("volumes", [])), "volumes")
    names = [volume["name"] for volume in new.get("volumes", [])]
    _require(len(old.get("volumes", [])) == len(names) or names[-1] not in names[:-1], "volumes")
    old_security, new_security = old.get("securityContext", {}), new.get("securityContext", {})
    _require(new_security.keys() <= {"seLinuxChangePolicy"}, "securityContext")
    _require(_is_kept("seLinuxChangePolicy", old_security, new_security), "seLinuxChangePolicy")
    old_inits, new_inits = old.get("initContainers", []), new.get("initContainers", [])
    _check_own_init_containers(old_inits, new_inits)
    _check_containers(_but_own(old_inits), _but_own(new_inits), may_restart=True)
    _check_containers(old.get("containers", []), new.get("containers", []))


def _foreign(annotations: dict[str, str] | None) -> dict[str, str]:
    return {k: v for k, v in (annotations or {}).items() if k not in OWN_ANNOTATIONS}


def _is_kept(key: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether a value that was there is there, and none has been taken away."""
    return before.get(key) in (None, after.get(key))


def _check_own_init_containers(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    for name in OWN_CONTAINERS:
        known, found = ([c for c in each if c["name"] == name] for each in (old, new))
        _require(found == known if known else len(found) <= 1, f"init container {name}")
    # Where it stood, or first. The gate beside it does not count.
    known_at, found_at = (
        [i for i, name in enumerate(names) if name == HELPER]
        for names in ([c["name"] for c in each if c["name"] != KUBELET_GATE] for each in (old, new))
    )
    _require(found_at in ([], [0], known_at), "place of the helper")


def _but_own(containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [container for container in containers if container["name"] not in OWN_CONTAINERS]


def _check_containers(
    old: list[dict[str, Any]], new: list[dict[str, Any]], *, may_restart: bool = False
) -> None:
    _require([c["name"] for c in old] == [c["name"] for c in new], "names of containers")
    for before, after in zip(old, new, strict=True):
        name = before["name"]
        _require(after.keys() <= _CHANGED, f"container {name}")
        _check_restart_policy(before, after, may_restart=may_restart)
        _require(before.get("args") == after.get("args"), f"args of {name}")
        command, wrapped = before.get("command"), after.get("command")
        if wrapped is None or command is None:
            _require(wrapped is command, f"command of {name}")
        else:
            _require(wrapped[len(wrapped) - len(command) :] == command, f"command of {name}")
        _require(
            _extends(before.get("volumeMounts", []), after.get("volumeMounts", [])),
            f"mounts of {name}",
        )


_RESTART = frozenset({"restartPolicy", "restartPolicyRules"})
_CHANGED = frozenset({"name", "command", "args", "volumeMounts"}) | _RESTART


def _check_restart_policy(
    before: dict[str, Any], after: dict[str, Any], *, may_restart: bool
) -> None:
    same = all(before.get(key) == after.get(key) for key in _RESTART)
    had_none = not any(before.get(key) for key in _RESTART)
    gained = may_restart and had_none and after.get("restartPolicy") == "Never"
    _require(same or gained, f"restartPolicy of {before['name']}")


def _extends(old: Any, new: Any) -> bool:
    """Whether a list is as it was, or longer by one. What is no list must be as it was."""
    if not isinstance(old, list):
        return bool(old == new)
    return new[: len(old)] == old and len(new) <= len(old) + 1


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise PatchError(f"the patch changes what it must not: {what}")
