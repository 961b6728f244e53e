"""Builds a JSON Patch (RFC 6902) from edits to a pod.

Remedies call methods such as `annotate` and `wrap`. No method removes anything from a pod. The
builder knows which fields the received pod has. It creates a parent field that is absent or null,
and it uses the indices of the received lists, so each operation applies. `verify` checks the
result.

A patch contains no `test` operations. A failing `test` would deny the pod, and `failurePolicy:
Ignore` does not admit it (kubernetes `mutating/dispatcher.go`).

Long because every kind of edit is a method of one class, and `verify` checks all of them together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from webhook.core.constants import OWN_ANNOTATIONS, OWN_CONTAINERS
from webhook.core.patch.verify import PatchError, Shape, VerifiedShapes
from webhook.core.pod import Container, Pod, is_set

Operation: TypeAlias = dict[str, Any]
"""One RFC 6902 operation, ready to be encoded."""

ContainerList: TypeAlias = Literal["initContainers", "containers"]

_MAX_ANNOTATIONS_BYTES = 256 * 1024
"""Kubernetes `TotalAnnotationSizeLimitB`: the keys and values of all annotations together."""
_MAX_CHARACTER_BYTES = 4
"""The maximum number of bytes of one character in UTF-8."""


def escape(key: str) -> str:
    """Return a key as one segment of a JSON Pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


class PodPatch:
    """The edits to one received pod, and the operations that make them.

    The operations on fields come first, because they use the received indices. Insertions and moves
    of init containers change these indices, so they come last.
    """

    __slots__ = (
        "_added_volumes", "_annotations", "_edit_shapes", "_edits", "_first_init_container",
        "_image_commands", "_mounted_paths", "_moved_first", "_placement", "_pod",
        "_runtime_class_name",
    )  # fmt: skip

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._annotations: dict[str, str] = {}
        self._edits: list[Operation] = []
        self._edit_shapes: list[Hashable] = []
        """For each edit, its path and the received facts that decide whether it is allowed."""
        self._image_commands: list[tuple[ContainerList, int, list[str], list[str]]] = []
        """The list and the index of a container, and its image's command and arguments."""
        self._mounted_paths: set[str] = set()
        self._added_volumes = 0
        self._runtime_class_name: str | None = None
        self._placement: _Placement | None = None
        self._first_init_container: dict[str, Any] | None = None
        self._moved_first: int | None = None
        """The received index of the init container that moves before all others."""

    @property
    def runtime_class_name(self) -> str | None:
        """The RuntimeClass that the patched pod names, if any."""
        return self._runtime_class_name or self._pod.spec.runtime_class_name or None

    def annotate(self, key: str, value: str) -> None:
        """Set one of podsettle's annotations. Raise PatchError for any other annotation."""
        if key not in OWN_ANNOTATIONS:
            raise PatchError(f"patch self-check failed: annotation {key} would change")
        self._annotations[key] = value

    def set_runtime_class(self, name: str) -> None:
        """Set `spec.runtimeClassName`."""
        self._runtime_class_name = name
        # The self-check allows the edit of an empty field only, or an edit that changes nothing.
        old = self._pod.spec.runtime_class_name
        self._edit(_add("/spec/runtimeClassName", name), old and (old, name))

    def set_selinux_change_policy(self, value: str) -> None:
        """Set `spec.securityContext.seLinuxChangePolicy`."""
        security = self._pod.spec.security_context
        if security is None:
            self._edit(_add("/spec/securityContext", {"seLinuxChangePolicy": value}), None)
        else:
            path = "/spec/securityContext/seLinuxChangePolicy"
            old = security.se_linux_change_policy
            self._edit(_add(path, value), old and (old, value))

    def wrap(self, where: ContainerList, index: int, wrapper: Sequence[str]) -> None:
        """Put a wrapper in front of a container's command."""
        command = self._container(where, index).command
        path = f"/spec/{where}/{index}/command"
        edit = {"op": "replace", "path": path, "value": [*wrapper, *(command or ())]}
        self._edit(edit, command is None)

    def wrap_image_command(
        self,
        where: ContainerList,
        index: int,
        wrapper: Sequence[str],
        command: list[str],
        args: list[str],
    ) -> None:
        """Set the command of a container that has none, to the wrapper and the image's command.

        `command` and `args` come from the image. The runtime ignores the arguments of an image if
        the container has a command. So `args` are set too, unless they are empty.
        """
        container = self._container(where, index)
        path = f"/spec/{where}/{index}"
        received_facts = (container.command is None, container.has_args)
        self._edit(_add(f"{path}/command", [*wrapper, *command]), received_facts)
        if args:
            self._edit(_add(f"{path}/args", args), received_facts)
        self._image_commands.append((where, index, command, args))

    def add_mount(self, where: ContainerList, index: int, mount: dict[str, Any]) -> None:
        """Append a volume mount to a container."""
        path = f"/spec/{where}/{index}/volumeMounts"
        absent = path not in self._mounted_paths and not self._container(where, index).has_mounts
        self._edit(_append(path, absent, mount), absent)
        self._mounted_paths.add(path)

    def add_volume(self, volume: dict[str, Any]) -> None:
        """Append a volume."""
        volumes = self._pod.spec.volumes
        absent = volumes is None and not self._added_volumes
        name_taken = False
        for other in volumes or ():
            name_taken = name_taken or other.name == volume["name"]
        self._edit(_append("/spec/volumes", absent, volume), (absent, name_taken))
        self._added_volumes += 1

    def set_restart_rules(self, index: int, rules: list[dict[str, Any]]) -> None:
        """Set the restart rules of an init container.

        `restartPolicy: Never` applies to exit codes that match no rule.
        """
        container = self._container("initContainers", index)
        path = f"/spec/initContainers/{index}"
        old = container.restart_policy, container.restart_policy_rules
        self._edit(_add(f"{path}/restartPolicy", "Never"), any(old) and repr((*old, rules)))
        self._edit(_add(f"{path}/restartPolicyRules", rules), None)

    def put_init_container(self, container: dict[str, Any], before: int | None) -> None:
        """Insert an init container before the one at `before`, or at the end."""
        count = len(self._pod.spec.init_containers or ())
        target = count if before is None else before
        self._placement = _Placement(target, container=container)

    def move_init_container(self, index: int, before: int | None) -> None:
        """Move the init container at `index` before the one at `before`, or to the end."""
        count = len(self._pod.spec.init_containers or ())
        self._placement = _Placement(count - 1 if before is None else before, source=index)

    def put_init_container_first(self, container: dict[str, Any]) -> None:
        """Insert an init container before all others."""
        self._first_init_container = container

    def move_init_container_first(self, index: int) -> None:
        """Move the init container at `index` before all others."""
        self._moved_first = index

    @property
    def settled_fingerprint(self) -> str:
        """The numbers of containers, init containers, volumes and labels of the patched pod.

        If a later webhook adds one of these, the fingerprint no longer matches and the API
        server calls podsettle again.
        """
        spec = self._pod.spec
        containers = len(spec.containers or ())
        inits = len(spec.init_containers or ()) + self._added_init_containers
        volumes = len(spec.volumes or ()) + self._added_volumes
        return f"{containers}/{inits}/{volumes}/{len(self._pod.labels or ())}"

    @property
    def _added_init_containers(self) -> int:
        # A placement without a container is a move, which adds none.
        inserted = self._placement.container if self._placement else None
        return (self._first_init_container is not None) + (inserted is not None)

    @property
    def annotations_fit(self) -> bool:
        """Whether the annotations of the patched pod stay below the API server's limit."""
        if not self._annotations:
            return True
        merged = {**(self._pod.annotations or {}), **self._annotations}
        characters = sum(map(len, merged)) + sum(map(len, merged.values()))
        if characters * _MAX_CHARACTER_BYTES <= _MAX_ANNOTATIONS_BYTES:
            return True
        return (
            sum(len(k.encode()) + len(v.encode()) for k, v in merged.items())
            <= _MAX_ANNOTATIONS_BYTES
        )

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations for all edits."""
        return (*self._annotation_ops(), *self._edits, *self._init_container_ops())

    def verified_operations(self, verified_shapes: VerifiedShapes) -> tuple[Operation, ...]:
        """Return the operations. Check them first if their shape was not verified before.

        Raises PatchError if the self-check fails.
        """
        operations = self.operations()
        if operations:
            shape = self._shape()
            if shape not in verified_shapes:
                verified_shapes.add(shape, self._before(), operations)
        return operations

    def _before(self) -> dict[str, Any]:
        """Return the part of the received pod that a patch may touch.

        Commands and arguments from images are included, as if the pod had set them.
        """
        before = _project_pod(self._pod)
        for where, index, command, args in self._image_commands:
            container = before["spec"][where][index]
            container.setdefault("command", command)
            if args and not self._container(where, index).has_args:
                container["args"] = args
        return before

    def _shape(self) -> Shape:
        """Return all facts on which the result of the self-check depends."""
        metadata, spec = self._pod.metadata, self._pod.spec
        inits = spec.init_containers
        first, placement = self._first_init_container, self._placement
        return (
            tuple(self._edit_shapes),
            metadata is None,
            metadata is None or metadata.annotations is None,
            tuple(self._annotations),
            len(spec.containers or ()),
            None if inits is None else len(inits),
            tuple([(i, c.name) for i, c in enumerate(inits or ()) if c.name in OWN_CONTAINERS]),
            placement.shape if placement else None,
            self._moved_first,
            first["name"] if first else None,
        )

    def _edit(self, operation: Operation, received_facts: Hashable) -> None:
        """Add an edit.

        `received_facts` are facts about the received pod. The result of the self-check depends on
        them and on the path of the edit.
        """
        self._edits.append(operation)
        self._edit_shapes.append((operation["path"], received_facts))

    def _annotation_ops(self) -> Iterable[Operation]:
        """Return the operations that set the annotations, and their parents if absent."""
        if not self._annotations:
            return ()
        metadata = self._pod.metadata
        if metadata is None:
            return (_add("/metadata", {"annotations": self._annotations}),)
        if metadata.annotations is None:
            return (_add("/metadata/annotations", self._annotations),)
        return [
            _add(f"/metadata/annotations/{escape(key)}", value)
            for key, value in self._annotations.items()
        ]

    def _init_container_ops(self) -> Iterable[Operation]:
        """Yield the insertions and moves of init containers."""
        absent = self._pod.spec.init_containers is None
        placement, moved = self._placement, self._moved_first
        if placement is not None:
            yield placement.operation(absent=absent)
            absent = False
            moved = None if moved is None else placement.index_after(moved)
        if moved is not None:
            source = f"/spec/initContainers/{moved}"
            yield {"op": "move", "from": source, "path": "/spec/initContainers/0"}
        if self._first_init_container is not None:
            if absent:
                yield _add("/spec/initContainers", [self._first_init_container])
            else:
                yield _add("/spec/initContainers/0", self._first_init_container)

    def _container(self, where: ContainerList, index: int) -> Container:
        spec = self._pod.spec
        containers = spec.init_containers if where == "initContainers" else spec.containers
        return (containers or [])[index]


class _Placement(NamedTuple):
    """An init container that is inserted at index `target`, or moved there from `source`."""

    target: int
    container: dict[str, Any] | None = None
    source: int | None = None

    def operation(self, *, absent: bool) -> Operation:
        """Return the insertion or the move. `absent` says that the pod has no init containers."""
        path = f"/spec/initContainers/{self.target}"
        if self.source is not None:
            return {"op": "move", "from": f"/spec/initContainers/{self.source}", "path": path}
        if absent:
            return _add("/spec/initContainers", [self.container])
        return _add(path, self.container)

    @property
    def shape(self) -> Hashable:
        """The facts about this operation on which the result of the self-check depends."""
        return self.target, self.source, self.container["name"] if self.container else None

    def index_after(self, index: int) -> int:
        """Return the index that another container, now at `index`, has after this operation."""
        if self.source is not None and index > self.source:
            index -= 1
        return index + 1 if index >= self.target else index


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _append(path: str, absent: bool, value: Any) -> Operation:
    """Return the operation that appends to a list, or creates the list if it is absent."""
    return _add(path, [value]) if absent else _add(f"{path}/-", value)


def _project_pod(pod: Pod) -> dict[str, Any]:
    """Return the part of the received pod that a patch may touch.

    Fields that are null or an empty string are omitted.
    """
    projected: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    if pod.metadata is not None:
        projected["metadata"] = {}
        if pod.metadata.annotations is not None:
            projected["metadata"]["annotations"] = dict(pod.metadata.annotations)
    if pod.spec.runtime_class_name:
        spec["runtimeClassName"] = pod.spec.runtime_class_name
    security = pod.spec.security_context
    if security is not None:
        value = security.se_linux_change_policy
        spec["securityContext"] = {"seLinuxChangePolicy": value} if value else {}
    if pod.spec.volumes is not None:
        spec["volumes"] = [{"name": volume.name} for volume in pod.spec.volumes]
    if pod.spec.init_containers is not None:
        spec["initContainers"] = [_project_container(c) for c in pod.spec.init_containers]
    if pod.spec.containers is not None:
        spec["containers"] = [_project_container(c) for c in pod.spec.containers]
    return projected | {"spec": spec}


def _project_container(container: Container) -> dict[str, Any]:
    projected: dict[str, Any] = {"name": container.name}
    if container.command is not None:
        projected["command"] = container.command
    # These fields stay undecoded. The decision cache omits them from the pod, so a decision must
    # not depend on whether they can be decoded.
    if is_set(container.args):
        projected["args"] = bytes(container.args)
    if is_set(container.volume_mounts):
        mounts = bytes(container.volume_mounts)
        projected["volumeMounts"] = [mounts] if mounts.startswith(b"[") else mounts
    if container.restart_policy is not None:
        projected["restartPolicy"] = container.restart_policy
    if container.restart_policy_rules is not None:
        projected["restartPolicyRules"] = msgspec.to_builtins(container.restart_policy_rules)
    return projected
