"""The self-check of a patch: whether it applies and makes only changes that podsettle may make.

Whether a patch applies depends on its paths and on the parents that exist. It does not depend on
values, because the builder keeps every received value. So the check has the same result for all
patches of one shape. For the first patch of each shape, `jsonpatch` applies the operations to the
part of the pod that they may touch. Later patches of the shape are not checked again. A cluster has
a few hundred shapes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import jsonpatch

from webhook.core.constants import HELPER, KUBELET_GATE, OWN_ANNOTATIONS, OWN_CONTAINERS

MAX_PARTS = 50_000
"""The maximum number of parts of all stored shapes. They take about 10 MB. The shapes of a cluster
have a few thousand parts."""

Shape: TypeAlias = tuple[Hashable, ...]
"""All facts about a patch and its pod on which the result of the self-check depends."""


class PatchError(Exception):
    """A patch that must not be sent: it does not apply, or it makes a forbidden change."""


class VerifiedShapes:
    """A store of the shapes of patches that passed the self-check."""

    def __init__(self, max_parts: int = MAX_PARTS) -> None:
        self._max_parts = max_parts
        self._shapes: set[Shape] = set()
        self._parts = 0

    def __contains__(self, shape: Shape) -> bool:
        return shape in self._shapes

    def add(
        self, shape: Shape, before: dict[str, Any], operations: Sequence[dict[str, Any]]
    ) -> None:
        """Check a patch and store its shape. Raise PatchError if the check fails.

        `before` is the part of the pod that the operations may touch.
        """
        try:
            after = jsonpatch.apply_patch(before, operations)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise PatchError(
                f"patch self-check failed: the patch does not apply: {error}"
            ) from error
        verify_patch(before, after)
        parts = sum(len(part) if isinstance(part, tuple) else 1 for part in shape)
        self._parts += parts
        if self._parts > self._max_parts:
            # Clear everything when full, so generated pods cannot exhaust memory.
            self._shapes.clear()
            self._parts = parts
        self._shapes.add(shape)


def verify_patch(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Raise PatchError if `after` differs from `before` by a change that podsettle must not make.

    Allowed changes:

    - podsettle's own annotations;
    - a runtimeClassName or a seLinuxChangePolicy, if the pod had none;
    - appended volumes and volume mounts;
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
        new.keys()
        <= {"runtimeClassName", "securityContext", "volumes", "initContainers", "containers"},
        "spec keys",
    )
    _require(
        _foreign_annotations(old_metadata.get("annotations"))
        == _foreign_annotations(new_metadata.get("annotations")),
        "foreign annotations",
    )
    _require(_unchanged_or_added("runtimeClassName", old, new), "runtimeClassName")
    _require(_is_append(old.get("volumes", []), new.get("volumes", [])), "volumes")
    names = [volume["name"] for volume in new.get("volumes", [])]
    _require(len(old.get("volumes", [])) == len(names) or names[-1] not in names[:-1], "volumes")
    old_security, new_security = old.get("securityContext", {}), new.get("securityContext", {})
    _require(new_security.keys() <= {"seLinuxChangePolicy"}, "securityContext")
    _require(
        _unchanged_or_added("seLinuxChangePolicy", old_security, new_security),
        "seLinuxChangePolicy",
    )
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


def _unchanged_or_added(key: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Return whether a field kept its value, or was absent before."""
    return before.get(key) in (None, after.get(key))


def _check_podsettle_init_containers(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    """Check that podsettle's init containers are unchanged or inserted once, the helper first."""
    for name in OWN_CONTAINERS:
        before, after = ([c for c in inits if c["name"] == name] for inits in (old, new))
        _require(after == before if before else len(after) <= 1, f"init container {name}")
    # The helper keeps its index or moves to index 0. The kubelet gate may stand before the helper,
    # so indices are counted without the gate.
    old_indices, new_indices = (
        [i for i, name in enumerate(names) if name == HELPER]
        for names in (
            [c["name"] for c in inits if c["name"] != KUBELET_GATE] for inits in (old, new)
        )
    )
    _require(new_indices in ([], [0], old_indices), "place of the helper")


def _without_podsettle_containers(containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [container for container in containers if container["name"] not in OWN_CONTAINERS]


def _check_containers(
    old: list[dict[str, Any]], new: list[dict[str, Any]], *, may_restart: bool = False
) -> None:
    """Check the changes of containers that are not podsettle's.

    `may_restart` says whether a patch may set restart rules on the containers.
    """
    _require([c["name"] for c in old] == [c["name"] for c in new], "names of containers")
    for before, after in zip(old, new, strict=True):
        name = before["name"]
        _require(after.keys() <= _PROJECTED_KEYS, f"container {name}")
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
_PROJECTED_KEYS = frozenset({"name", "command", "args", "volumeMounts"}) | _RESTART_KEYS
"""The fields of a container that the checked part of a pod holds. A patch must not add others."""


def _check_restart_policy(
    before: dict[str, Any], after: dict[str, Any], *, may_restart: bool
) -> None:
    """Check that the restart fields are unchanged, or set where the container had none."""
    same = all(before.get(key) == after.get(key) for key in _RESTART_KEYS)
    had_none = not any(before.get(key) for key in _RESTART_KEYS)
    newly_set = may_restart and had_none and after.get("restartPolicy") == "Never"
    _require(same or newly_set, f"restartPolicy of {before['name']}")


def _is_append(old: Any, new: Any) -> bool:
    """Return whether a list is unchanged or has one more item at its end.

    A value that is no list must be unchanged.
    """
    if not isinstance(old, list):
        return bool(old == new)
    return new[: len(old)] == old and len(new) <= len(old) + 1


def _require(condition: bool, subject: str) -> None:
    """Raise PatchError if a condition is false. `subject` names the part that would change."""
    if not condition:
        raise PatchError(f"patch self-check failed: {subject} would change")
