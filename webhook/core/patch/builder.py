"""The edits of a decision as a JSON Patch (RFC 6902).

Remedies say what they want (`annotate`, `wrap`, …), and can say nothing that takes something away.
This module knows what the received pod already has, so that each operation applies: a parent that
is absent or null is created, an index is that of the received list. `proof` sees to it that this is
so. No `test` operations: a failing one is a denial that
`failurePolicy: Ignore` does not cover (kubernetes `mutating/dispatcher.go`).
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

_ANNOTATIONS = 256 * 1024
"""kubernetes `TotalAnnotationSizeLimitB`: keys and values of all annotations together."""
_BYTES_OF_A_CHARACTER = 4
"""At the most, in UTF-8."""


def escape(key: str) -> str:
    """A key as one segment of a JSON Pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


class PodPatch:
    """Collects edits to one received pod and gives the operations for them, in a safe order.

    Edits of containers use the received indices; init containers are put in or moved after that.
    """

    __slots__ = (
        "_annotations", "_arrangement", "_edits", "_first_init_container", "_forms", "_from_images",
        "_mounted", "_moved_first", "_pod", "_runtime_class_name", "_volumes",
    )  # fmt: skip

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._annotations: dict[str, str] = {}
        self._edits: list[Operation] = []
        self._forms: list[Hashable] = []
        """Of each edit its path and, of what was received, all that decides whether it may be."""
        self._from_images: list[tuple[ContainerList, int, list[str], list[str]]] = []
        self._mounted: set[str] = set()
        self._volumes = 0
        self._runtime_class_name: str | None = None
        self._arrangement: _Arrangement | None = None
        self._first_init_container: dict[str, Any] | None = None
        self._moved_first: int | None = None

    @property
    def runtime_class_name(self) -> str | None:
        """The class that the pod will name: the one set here, else its own."""
        return self._runtime_class_name or self._pod.spec.runtime_class_name or None

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation of podsettle's own. Raises PatchError for any other."""
        if key not in OWN_ANNOTATIONS:
            raise PatchError(f"the patch changes what it must not: annotation {key}")
        self._annotations[key] = value

    def set_runtime_class(self, name: str) -> None:
        """Set `spec.runtimeClassName`."""
        self._runtime_class_name = name
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
        """Put a wrapper in front of the command that a container has."""
        command = self._container(where, index).command
        path = f"/spec/{where}/{index}/command"
        edit = {"op": "replace", "path": path, "value": [*wrapper, *(command or ())]}
        self._edit(edit, command is None)

    def wrap_image(
        self,
        where: ContainerList,
        index: int,
        wrapper: Sequence[str],
        command: list[str],
        args: list[str],
    ) -> None:
        """Put a wrapper in front of what the image of a container without a command starts.

        Its `args` are set where there are any, since an explicit command makes the runtime pass
        over the image's own.
        """
        container = self._container(where, index)
        path = f"/spec/{where}/{index}"
        received = (container.command is None, container.has_args)
        self._edit(_add(f"{path}/command", [*wrapper, *command]), received)
        if args:
            self._edit(_add(f"{path}/args", args), received)
        self._from_images.append((where, index, command, args))

    def add_mount(self, where: ContainerList, index: int, mount: dict[str, Any]) -> None:
        """Append a volume mount to a container."""
        path = f"/spec/{where}/{index}/volumeMounts"
        absent = path not in self._mounted and not self._container(where, index).has_mounts
        self._edit(_append(path, absent, mount), absent)
        self._mounted.add(path)

    def add_volume(self, volume: dict[str, Any]) -> None:
        """Append a volume."""
        volumes = self._pod.spec.volumes
        absent = volumes is None and not self._volumes
        taken = False
        for other in volumes or ():
            taken = taken or other.name == volume["name"]
        self._edit(_append("/spec/volumes", absent, volume), (absent, taken))
        self._volumes += 1

    def set_restart_rules(self, index: int, rules: list[dict[str, Any]]) -> None:
        """Give the init container at `index` rules by which it is restarted, and else never."""
        container = self._container("initContainers", index)
        path = f"/spec/initContainers/{index}"
        old = container.restart_policy, container.restart_policy_rules
        self._edit(_add(f"{path}/restartPolicy", "Never"), any(old) and repr((*old, rules)))
        self._edit(_add(f"{path}/restartPolicyRules", rules), None)

    def put_init_container(self, container: dict[str, Any], before: int | None) -> None:
        """Insert an init container before the one at `before`, or after all others."""
        count = len(self._pod.spec.init_containers or ())
        target = count if before is None else before
        self._arrangement = _Arrangement(target, container=container)

    def move_init_container(self, index: int, before: int | None) -> None:
        """Move the init container at `index` before an earlier one, or behind all others."""
        count = len(self._pod.spec.init_containers or ())
        self._arrangement = _Arrangement(count - 1 if before is None else before, source=index)

    def put_init_container_first(self, container: dict[str, Any]) -> None:
        """Insert an init container before all others."""
        self._first_init_container = container

    def move_init_container_first(self, index: int) -> None:
        """Move the init container at `index` before all others."""
        self._moved_first = index

    @property
    def settled_fingerprint(self) -> str:
        """How many containers, init containers, volumes and labels the pod has with the edits.

        What another webhook adds later, and a policy may want to know of, changes one of them.
        """
        spec = self._pod.spec
        containers = len(spec.containers or ())
        inits = len(spec.init_containers or ()) + self._added_init_containers
        volumes = len(spec.volumes or ()) + self._volumes
        return f"{containers}/{inits}/{volumes}/{len(self._pod.labels or ())}"

    @property
    def _added_init_containers(self) -> int:
        arranged = self._arrangement.container if self._arrangement else None
        return (self._first_init_container is not None) + (arranged is not None)

    @property
    def annotations_fit(self) -> bool:
        """Whether the pod's annotations stay within what the API server takes, in bytes."""
        if not self._annotations:
            return True
        merged = {**(self._pod.annotations or {}), **self._annotations}
        characters = sum(map(len, merged)) + sum(map(len, merged.values()))
        if characters * _BYTES_OF_A_CHARACTER <= _ANNOTATIONS:
            return True
        return sum(len(k.encode()) + len(v.encode()) for k, v in merged.items()) <= _ANNOTATIONS

    def operations(self) -> tuple[Operation, ...]:
        """The operations for all edits; empty where there are none."""
        return (*self._annotating(), *self._edits, *self._placing())

    def verified_operations(self, verified_shapes: VerifiedShapes) -> tuple[Operation, ...]:
        """The operations, once some of their shape were seen to do what they should.

        Raises PatchError.
        """
        operations = self.operations()
        if operations:
            shape = self._shape()
            if shape not in verified_shapes:
                verified_shapes.add(shape, self._before(), operations)
        return operations

    def _before(self) -> dict[str, Any]:
        """The part of the received pod that a patch may touch.

        What a container has from its image is there as if the pod had said it.
        """
        before = _projection(self._pod)
        for where, index, command, args in self._from_images:
            container = before["spec"][where][index]
            container.setdefault("command", command)
            if args and not self._container(where, index).has_args:
                container["args"] = args
        return before

    def _shape(self) -> Shape:
        """All that the verdict of the check hangs on."""
        metadata, spec = self._pod.metadata, self._pod.spec
        inits = spec.init_containers
        first, arrangement = self._first_init_container, self._arrangement
        return (
            tuple(self._forms),
            metadata is None,
            metadata is None or metadata.annotations is None,
            tuple(self._annotations),
            len(spec.containers or ()),
            None if inits is None else len(inits),
            tuple([(i, c.name) for i, c in enumerate(inits or ()) if c.name in OWN_CONTAINERS]),
            arrangement.form if arrangement else None,
            self._moved_first,
            first["name"] if first else None,
        )

    def _edit(self, operation: Operation, received: Hashable) -> None:
        self._edits.append(operation)
        self._forms.append((operation["path"], received))

    def _annotating(self) -> Iterable[Operation]:
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

    def _placing(self) -> Iterable[Operation]:
        """What puts init containers elsewhere: after all edits, which count as received."""
        absent = self._pod.spec.init_containers is None
        arrangement, moved = self._arrangement, self._moved_first
        if arrangement is not None:
            yield arrangement.operation(absent=absent)
            absent = False
            moved = None if moved is None else arrangement.after(moved)
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


class _Arrangement(NamedTuple):
    """One init container that is inserted or, from `source`, moved; `target` is where it ends."""

    target: int
    container: dict[str, Any] | None = None
    source: int | None = None

    def operation(self, *, absent: bool) -> Operation:
        path = f"/spec/initContainers/{self.target}"
        if self.source is not None:
            return {"op": "move", "from": f"/spec/initContainers/{self.source}", "path": path}
        if absent:
            return _add("/spec/initContainers", [self.container])
        return _add(path, self.container)

    @property
    def form(self) -> Hashable:
        """What the operation is, but for most of the container."""
        return self.target, self.source, self.container["name"] if self.container else None

    def after(self, index: int) -> int:
        """Where the other container at `index` stands then."""
        if self.source is not None and index > self.source:
            index -= 1
        return index + 1 if index >= self.target else index


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _append(path: str, absent: bool, value: Any) -> Operation:
    return _add(path, [value]) if absent else _add(f"{path}/-", value)


def _projection(pod: Pod) -> dict[str, Any]:
    """The part of the received pod that a patch may touch, as JSON; null and "" are as absent."""
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
        spec["initContainers"] = [_projected(c) for c in pod.spec.init_containers]
    if pod.spec.containers is not None:
        spec["containers"] = [_projected(c) for c in pod.spec.containers]
    return projected | {"spec": spec}


def _projected(container: Container) -> dict[str, Any]:
    projected: dict[str, Any] = {"name": container.name}
    if container.command is not None:
        projected["command"] = container.command
    # Undecoded: whether they can be decoded must decide nothing. With the decision cache they are
    # not part of the pod that is decided on.
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
