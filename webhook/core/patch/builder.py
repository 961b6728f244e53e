"""Builds a JSON Patch (RFC 6902) from edits to a pod.

Remedies call methods such as `annotate` and `wrap`. No method removes anything from a pod. The
builder knows which fields the received pod has. It creates a parent field that is absent or null,
and it uses the indices of the received lists, so each operation applies. `verify` checks the
result.

A patch contains no `test` operations. A failing `test` would deny the pod, and `failurePolicy:
Ignore` does not admit it (kubernetes `mutating/dispatcher.go`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import structs

from webhook.core.constants import HELPER, OWN_ANNOTATIONS
from webhook.core.decision_input import ContainerFacts, PodFacts
from webhook.core.patch.edits import Edit
from webhook.core.patch.received_command import ContainerList, received_command
from webhook.core.patch.self_check import Operation, PatchError, verify_operations
from webhook.core.patch.usual_patch import is_usual_and_allowed
from webhook.core.pod import SecurityContext, SpecFields

Before: TypeAlias = int | Literal["first"]
"""A place for an init container: before all others, or before the received one with an index, which
is the number of received ones for a place after all others."""
_OPAQUE = ""
"""The value that stands for received values on which the self-check does not depend."""


def escape(key: str) -> str:
    """Return a key as one segment of a JSON Pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


_ANNOTATION_PATHS = {key: f"/metadata/annotations/{escape(key)}" for key in OWN_ANNOTATIONS}
_SECURITY_CONTEXT = "/spec/securityContext"
_SPEC_FIELDS = {f"/spec/{each.encode_name}": each.name for each in structs.fields(SpecFields)}
_SECURITY_FIELDS = {
    f"{_SECURITY_CONTEXT}/{each.encode_name}": each.name for each in structs.fields(SecurityContext)
}
"""The attributes of a pod's facts, and of its security context, by the paths of the fields."""
_ABSENT: tuple[Any, ...] = (None, "", [], (), {})
"""The values of a field that count as absent, as in the API server."""


class PodPatch:
    """The edits to one received pod, and the operations that make them.

    The operations on fields come first, because they use the received indices. Insertions and moves
    of init containers change these indices, so they come last, in the order of the calls.
    """

    def __init__(self, pod: PodFacts) -> None:
        self._pod = pod
        self._containers: dict[ContainerList, Sequence[ContainerFacts]] = {
            "initContainers": pod.init_containers or (),
            "containers": pod.containers or (),
        }
        self._unchecked: set[str] = set()
        """The kinds of edits since the last call of `check_declared`, and the paths of fields."""
        self._single_edits: set[str] = set()
        """The edits that must not be made twice."""
        self.annotations: dict[str, str] = {}
        """The annotations that the patch sets. `annotate` adds to them."""
        self._edits: list[Operation] = []
        self._fields: dict[str, Any] = {}
        """The paths and values of the fields of the spec that are set."""
        self._new_security_context: dict[str, Any] = {}
        """The fields of the pod's security context, if the pod has none."""
        self._edited_containers: set[tuple[ContainerList, int]] = set()
        self._image_commands: list[tuple[ContainerList, int, list[str], list[str]]] = []
        """The list and the index of a container, and its image's command and arguments."""
        self._wrappers: dict[tuple[ContainerList, int], tuple[Sequence[str], Operation]] = {}
        """For each wrapped container, the wrapper and the operation that sets the command."""
        self._mounted_paths: set[str] = set()
        self._added_volumes = 0
        self._init_container_ops: list[Operation] = []
        self._init_order: list[int | None] = [*range(len(pod.init_containers or ()))]
        """The order of the init containers after `_init_container_ops`: received indices, and None
        for each inserted one."""
        self._inserted: dict[str, dict[str, Any]] = {}
        """The init containers that the patch inserts, by name."""

    @property
    def runtime_class_name(self) -> str | None:
        """The RuntimeClass that the patched pod names, if any."""
        return self._fields.get("/spec/runtimeClassName") or self._pod.runtime_class_name or None

    @property
    def adds_volume(self) -> bool:
        """Whether the patch adds the helper's volume, so that an earlier remedy delivers it."""
        return self._added_volumes > 0

    @property
    def is_empty(self) -> bool:
        """Whether no edit was made."""
        return not (self.annotations or self._edits or self._init_container_ops)

    def annotate(self, key: str, value: str) -> None:
        """Set one of podsettle's annotations. Raise PatchError for any other annotation."""
        if key not in OWN_ANNOTATIONS:
            raise PatchError(f"patch self-check failed: annotation {key} would change")
        self._unchecked.add(Edit.ANNOTATION)
        self.annotations[key] = value

    def set_field(self, path: str, value: Any) -> None:
        """Set a field of the spec or of its security context, such as `/spec/runtimeClassName`.

        If the field has the value already, do nothing. Raise PatchError if it has another value, or
        if `webhook.core.pod` does not declare it, because its present value is then unknown.
        """
        security = self._pod.security_context
        if path in _SPEC_FIELDS:
            received = getattr(self._pod, _SPEC_FIELDS[path])
        elif path in _SECURITY_FIELDS:
            received = security and getattr(security, _SECURITY_FIELDS[path])
        else:
            raise PatchError(f"patch self-check failed: {path} is not a declared field")
        present = self._fields.get(path) if received in _ABSENT else received
        if present == value:
            return
        if present is not None:
            raise PatchError(f"patch self-check failed: {path} would change")
        self._unchecked.add(path)
        self._fields[path] = value
        if path in _SPEC_FIELDS or security is not None:
            self._edits.append(_add(path, value))
            return
        # Two fields of an absent security context have to be set by one operation.
        if not self._new_security_context:
            self._edits.append(_add(_SECURITY_CONTEXT, self._new_security_context))
        self._new_security_context[path.removeprefix(f"{_SECURITY_CONTEXT}/")] = value

    def wrap(
        self,
        where: ContainerList,
        index: int,
        wrapper: Sequence[str],
        image_command: tuple[list[str], list[str]] | None = None,
    ) -> None:
        """Put a wrapper in front of a container's command. Raise PatchError if it has one.

        `image_command` is the command from the image and its arguments, for a container that sets
        no command. The runtime ignores the arguments of an image if the container has a command. So
        `args` are set too, unless they are empty. Raise PatchError if the container may set one.
        """
        self._unchecked.add(Edit.COMMAND)
        path = f"/spec/{where}/{index}"
        self._forbid_second(f"{path}/command")
        command, args = image_command or ([], [])
        if image_command is None:
            value = [*wrapper, received_command(where, index)]
            operation = {"op": "replace", "path": f"{path}/command", "value": value}
        elif self._containers[where][index].entrypoint_image is None:
            raise PatchError(f"patch self-check failed: command of {where}/{index} would change")
        else:
            operation = _add(f"{path}/command", [*wrapper, *command])
            self._image_commands.append((where, index, command, args))
        self._edits.append(operation)
        if args:
            self._edits.append(_add(f"{path}/args", args))
        self._wrappers[where, index] = wrapper, operation
        self._edited_containers.add((where, index))

    def wrapper(self, where: ContainerList, index: int) -> Sequence[str] | None:
        """Return the wrapper that the patch puts in front of a container's command, or None."""
        found = self._wrappers.get((where, index))
        return found[0] if found else None

    def change_wrapper(self, where: ContainerList, index: int, wrapper: Sequence[str]) -> None:
        """Replace the wrapper of the patch. Raises KeyError if it has none for the container."""
        self._unchecked.add(Edit.COMMAND)
        present, operation = self._wrappers[where, index]
        operation["value"] = [*wrapper, *operation["value"][len(present) :]]
        self._wrappers[where, index] = wrapper, operation

    def add_mount(self, where: ContainerList, index: int, mount: dict[str, Any]) -> None:
        """Append a mount of the helper's volume to a container.

        Raise PatchError for any other mount, and if the container's mounts are unknown or are at
        the helper's path.
        """
        container = self._containers[where][index]
        if (
            mount.get("name") != HELPER
            or container.omits_command_and_mounts
            or container.mounts_over_helper
        ):
            raise PatchError(f"patch self-check failed: mounts of {container.name} would change")
        self._unchecked.add(Edit.MOUNT)
        path = f"/spec/{where}/{index}/volumeMounts"
        absent = path not in self._mounted_paths and not container.has_mounts
        self._edits.append(_append(path, absent, mount))
        self._mounted_paths.add(path)
        self._edited_containers.add((where, index))

    def adds_mount(self, where: ContainerList, index: int) -> bool:
        """Return whether the patch mounts the helper's volume in a container."""
        return f"/spec/{where}/{index}/volumeMounts" in self._mounted_paths

    def add_volume(self, volume: dict[str, Any]) -> None:
        """Append a volume."""
        self._unchecked.add(Edit.VOLUME)
        absent = self._pod.volume_count is None and not self._added_volumes
        self._edits.append(_append("/spec/volumes", absent, volume))
        self._added_volumes += 1

    def set_restart_rules(self, index: int, rules: list[dict[str, Any]]) -> None:
        """Set the restart rules of an init container.

        `restartPolicy: Never` applies to exit codes that match no rule.
        """
        self._unchecked.add(Edit.RESTART_RULES)
        path = f"/spec/initContainers/{index}"
        self._edits.append(_add(f"{path}/restartPolicy", "Never"))
        self._edits.append(_add(f"{path}/restartPolicyRules", rules))
        self._edited_containers.add(("initContainers", index))

    def put_init_container(self, container: dict[str, Any], before: Before) -> None:
        """Insert a copy of an init container."""
        self._unchecked.add(Edit.INIT_CONTAINER)
        container = {**container}
        name = container["name"]
        self._forbid_second(f"init container {name}")
        is_absent = self._pod.init_containers is None and not self._init_container_ops
        target = self._place(before)
        self._init_order.insert(target, None)
        self._init_container_ops.append(
            _add("/spec/initContainers", [container])
            if is_absent
            else _add(f"/spec/initContainers/{target}", container)
        )
        self._inserted[name] = container

    def inserted_init_container(self, name: str) -> dict[str, Any] | None:
        """Return the init container with a name that the patch inserts, or None."""
        return self._inserted.get(name)

    def change_inserted(self, name: str, fields: dict[str, Any]) -> None:
        """Set fields of an init container that the patch inserts. The name may be one of them.

        Raises KeyError if the patch inserts none with this name.
        """
        self._unchecked.add(Edit.INIT_CONTAINER)
        container = self._inserted.pop(name)
        container |= fields  # The operation has the same object.
        self._forbid_second(f"init container {container['name']}")
        self._inserted[container["name"]] = container

    def move_init_container(self, index: int, before: Before) -> None:
        """Move the received init container at `index`. Raise PatchError if there is none."""
        order = self._init_order
        if index not in order:
            raise PatchError(f"patch self-check failed: there is no init container {index}")
        source = order.index(index)
        if before == "first" and source == 0:
            return  # Two remedies may need the helper there.
        self._unchecked.add(Edit.INIT_CONTAINER)
        self._forbid_second(f"place of init container {index}")
        del order[source]
        target = self._place(before)
        order.insert(target, index)
        path = "/spec/initContainers"
        self._init_container_ops.append(
            {"op": "move", "from": f"{path}/{source}", "path": f"{path}/{target}"}
        )

    def _place(self, before: Before) -> int:
        """Return the index in the present order of the init containers that a place has."""
        if before == "first":
            return 0
        order = self._init_order
        return order.index(before) if before in order else len(order)

    def _forbid_second(self, edit: str) -> None:
        """Raise PatchError for the second edit of a kind that would undo the first one."""
        if edit in self._single_edits:
            raise PatchError(f"patch self-check failed: {edit} would change twice")
        self._single_edits.add(edit)

    def check_declared(self, edits: Collection[Edit], fields: Collection[str]) -> None:
        """Raise PatchError if an edit since the last call is not of these kinds and fields.

        A caller that applies a remedy passes what the remedy declares.
        """
        undeclared = self._unchecked.difference(edits, fields)
        if undeclared:
            listed = ", ".join(sorted(undeclared))
            raise PatchError(f"patch self-check failed: undeclared edits: {listed}")
        self._unchecked.clear()

    @property
    def settled_fingerprint(self) -> str:
        """The numbers of containers, init containers, volumes and labels of the patched pod.

        If a later webhook adds one of these, the fingerprint no longer matches and the API
        server calls podsettle again.
        """
        pod = self._pod
        containers = len(pod.containers or ())
        inits = len(pod.init_containers or ()) + len(self._inserted)
        volumes = (pod.volume_count or 0) + self._added_volumes
        return f"{containers}/{inits}/{volumes}/{pod.label_count}"

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations for all edits, with places for received commands."""
        return (*self._annotation_ops(), *self._edits, *self._init_container_ops)

    def verified_operations(self, settable_fields: Collection[str]) -> tuple[Operation, ...]:
        """Return the operations after a self-check. Raise PatchError if the check fails.

        `settable_fields` holds the paths of the fields of the spec that the patch may set.
        """
        operations = self.operations()
        if self._mounted_paths and self._pod.helper_volume is None and not self._added_volumes:
            # The API server rejects a pod with a mount that has no volume.
            raise PatchError("patch self-check failed: the mounted volume is missing")
        if operations and not is_usual_and_allowed(self._pod, operations):
            verify_operations(self._received_part(), operations, settable_fields)
        return operations

    def _received_part(self) -> dict[str, Any]:
        """Return the part of the received pod that the patch may touch.

        The name of a container stands for a container without edits, so no operation can change
        anything inside it. Commands and arguments from images are included, as if the pod had set
        them.
        """
        pod = self._pod
        spec: dict[str, Any] = {}
        part: dict[str, Any] = {"spec": spec}
        if pod.has_metadata:
            part["metadata"] = {}
            if pod.annotations is not None:
                part["metadata"]["annotations"] = pod.annotations
        if pod.security_context is not None and self._fields:
            spec["securityContext"] = {}
        if pod.volume_count is not None:
            # One item stands for all volumes, because edits only append to the list.
            names = [_OPAQUE if pod.helper_volume is None else HELPER]
            spec["volumes"] = names if pod.volume_count else []
        for where, containers in (
            ("initContainers", pod.init_containers), ("containers", pod.containers)
        ):  # fmt: skip
            if containers is not None:
                spec[where] = [container.name for container in containers]
        for where, index in self._edited_containers:
            spec[where][index] = _container_part(self._containers[where][index], where, index)
        for where, index, command, args in self._image_commands:
            spec[where][index].setdefault("command", command)
            if args:
                spec[where][index].setdefault("args", args)
        return part

    def _annotation_ops(self) -> Iterable[Operation]:
        """Return the operations that set the annotations, and their parents if absent."""
        if not self.annotations:
            return ()
        if not self._pod.has_metadata:
            return (_add("/metadata", {"annotations": self.annotations}),)
        if self._pod.annotations is None:
            return (_add("/metadata/annotations", self.annotations),)
        return [
            {"op": "add", "path": _ANNOTATION_PATHS[key], "value": value}
            for key, value in self.annotations.items()
        ]


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _append(path: str, absent: bool, value: Any) -> Operation:
    """Return the operation that appends to a list, or creates the list if it is absent."""
    return _add(path, [value]) if absent else _add(f"{path}/-", value)


def _container_part(container: ContainerFacts, where: ContainerList, index: int) -> dict[str, Any]:
    """Return the part of a received container that a patch may touch."""
    part: dict[str, Any] = {"name": container.name}
    if container.command:
        part["command"] = [received_command(where, index)]
    if container.entrypoint_image is not None and container.entrypoint_image.has_args:
        part["args"] = _OPAQUE
    if container.has_mounts:
        part["volumeMounts"] = [_OPAQUE]
    if container.restart_policy is not None:
        part["restartPolicy"] = container.restart_policy
    if container.restart_policy_rules is not None:
        # A patch never replaces rules, and a client can send thousands.
        part["restartPolicyRules"] = [_OPAQUE] if container.restart_policy_rules else []
    return part
