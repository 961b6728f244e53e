"""The edits of a decision as a JSON Patch (RFC 6902), and the check that it does what it says.

Remedies say what they want (`annotate`, `set_command`, …); this module knows what the received
pod already has, so that each operation applies: a parent that is absent or null is created, an
index is that of the received list. No `test` operations: a failing one is a denial that
`failurePolicy: Ignore` does not cover (kubernetes `mutating/dispatcher.go`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import jsonpatch
import msgspec

from webhook.core.decision import Operation
from webhook.core.names import HELPER, KUBELET_GATE, OWN_ANNOTATIONS, OWN_CONTAINERS
from webhook.core.review import Container, Pod

ContainerList: TypeAlias = Literal["initContainers", "containers"]


_ANNOTATIONS = 256 * 1024
"""kubernetes `TotalAnnotationSizeLimitB`: keys and values of all annotations together."""


class PatchError(Exception):
    """A patch that must not be answered: it does not apply, or it does what it should not."""


def escape(key: str) -> str:
    """A key as one segment of a JSON Pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


class PodPatch:
    """Collects edits to one received pod and gives the operations for them, in a safe order.

    Edits of containers use the received indices; init containers are put in or moved after that.
    """

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._annotations: dict[str, str] = {}
        self._commands: dict[tuple[ContainerList, int], list[str]] = {}
        self._args: dict[tuple[ContainerList, int], list[str]] = {}
        self._filled: dict[tuple[ContainerList, int], tuple[list[str], list[str]]] = {}
        self._mounts: dict[tuple[ContainerList, int], dict[str, Any]] = {}
        self._volumes: list[dict[str, Any]] = []
        self._runtime_class_name: str | None = None
        self._restart_rules: dict[int, list[dict[str, Any]]] = {}
        self._selinux_change_policy: str | None = None
        self._arrangement: _Arrangement | None = None
        self._first_init_container: dict[str, Any] | None = None
        self._moved_first: int | None = None

    @property
    def runtime_class_name(self) -> str | None:
        """The class that the pod will name: the one set here, else its own."""
        return self._runtime_class_name or self._pod.spec.runtime_class_name

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation."""
        self._annotations[key] = value

    def set_runtime_class(self, name: str) -> None:
        """Set `spec.runtimeClassName`."""
        self._runtime_class_name = name

    def set_command(self, where: ContainerList, index: int, command: list[str]) -> None:
        """Replace a container's command."""
        self._commands[where, index] = command

    def fill_in(
        self, where: ContainerList, index: int, command: list[str], args: list[str]
    ) -> None:
        """Take these for what a container without `command` runs: they are its image's.

        Its `args` are set where there are any, since an explicit command makes the runtime pass
        over the image's own; the command is set by `set_command`, with a wrapper in front.
        """
        self._filled[where, index] = (command, args)
        if args:
            self._args[where, index] = args

    def add_mount(self, where: ContainerList, index: int, mount: dict[str, Any]) -> None:
        """Append a volume mount to a container."""
        self._mounts[where, index] = mount

    def add_volume(self, volume: dict[str, Any]) -> None:
        """Append a volume."""
        self._volumes.append(volume)

    def set_restart_rules(self, index: int, rules: list[dict[str, Any]]) -> None:
        """Give the init container at `index` rules by which it is restarted, and else never."""
        self._restart_rules[index] = rules

    def set_selinux_change_policy(self, value: str) -> None:
        """Set `spec.securityContext.seLinuxChangePolicy`."""
        self._selinux_change_policy = value

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
    def size(self) -> str:
        """How many containers, init containers, volumes and labels the pod has with the edits.

        What another webhook adds later, and a policy may want to know of, changes one of them.
        """
        spec = self._pod.spec
        sizes = (
            len(spec.containers or ()),
            len(spec.init_containers or ()) + self._added_init_containers,
            len(spec.volumes or ()) + len(self._volumes),
            len(self._pod.labels or ()),
        )
        return "/".join(map(str, sizes))

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
        return sum(len(k.encode()) + len(v.encode()) for k, v in merged.items()) <= _ANNOTATIONS

    def operations(self) -> tuple[Operation, ...]:
        """The operations for all edits; empty where there are none."""
        return tuple(self._operations())

    def _operations(self) -> Iterable[Operation]:
        metadata, spec = self._pod.metadata, self._pod.spec
        if self._annotations:
            if metadata is None:
                yield _add("/metadata", {"annotations": self._annotations})
            elif metadata.annotations is None:
                yield _add("/metadata/annotations", self._annotations)
            else:
                for key, value in self._annotations.items():
                    yield _add(f"/metadata/annotations/{escape(key)}", value)
        if self._runtime_class_name is not None:
            yield _add("/spec/runtimeClassName", self._runtime_class_name)
        if self._selinux_change_policy is not None:
            setting = {"seLinuxChangePolicy": self._selinux_change_policy}
            if spec.security_context is None:
                yield _add("/spec/securityContext", setting)
            else:
                path = "/spec/securityContext/seLinuxChangePolicy"
                yield _add(path, self._selinux_change_policy)
        for (where, index), command in self._commands.items():
            path = f"/spec/{where}/{index}/command"
            op = "add" if (where, index) in self._filled else "replace"
            yield {"op": op, "path": path, "value": command}
        for (where, index), args in self._args.items():
            yield _add(f"/spec/{where}/{index}/args", args)
        for (where, index), mount in self._mounts.items():
            path = f"/spec/{where}/{index}/volumeMounts"
            yield _append(path, self._container(where, index).volume_mounts is None, mount)
        for position, volume in enumerate(self._volumes):
            yield _append("/spec/volumes", spec.volumes is None and position == 0, volume)
        for index, rules in self._restart_rules.items():
            yield _add(f"/spec/initContainers/{index}/restartPolicy", "Never")
            yield _add(f"/spec/initContainers/{index}/restartPolicyRules", rules)
        yield from self._init_containers()

    def _init_containers(self) -> Iterable[Operation]:
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

    def checked_operations(self) -> tuple[Operation, ...]:
        """The operations, once they were seen to do what they should to what was received.

        They are applied to the part of the received pod that a patch may touch. Raises PatchError.
        """
        operations = self.operations()
        if not operations:
            return operations
        before, after = _projection(self._pod), _projection(self._pod)
        for (where, index), (command, args) in self._filled.items():
            container = before["spec"][where][index]
            container |= {"command": command} | ({"args": args} if args else {})
        try:
            after = jsonpatch.apply_patch(after, operations, in_place=True)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise PatchError(f"the patch does not apply: {error}") from error
        check_edits(before, after)
        return operations

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
    """The part of the received pod that a patch may touch, as JSON; null counts as absent."""
    projected: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    if pod.metadata is not None:
        projected["metadata"] = {}
        if pod.metadata.annotations is not None:
            projected["metadata"]["annotations"] = dict(pod.metadata.annotations)
    if pod.spec.runtime_class_name is not None:
        spec["runtimeClassName"] = pod.spec.runtime_class_name
    security = pod.spec.security_context
    if security is not None:
        value = security.se_linux_change_policy
        spec["securityContext"] = {} if value is None else {"seLinuxChangePolicy": value}
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
    if container.volume_mounts is not None:
        projected["volumeMounts"] = [
            {"name": mount.name, "mountPath": mount.mount_path} for mount in container.volume_mounts
        ]
    if container.restart_policy is not None:
        projected["restartPolicy"] = container.restart_policy
    if container.restart_policy_rules is not None:
        projected["restartPolicyRules"] = msgspec.to_builtins(container.restart_policy_rules)
    return projected


def check_edits(before: dict[str, Any], after: dict[str, Any]) -> None:
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
    _require(old.get("runtimeClassName") in (None, new.get("runtimeClassName")), "runtimeClassName")
    _require(_extends(old.get("volumes", []), new.get("volumes", [])), "volumes")
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


def _extends(old: list[Any], new: list[Any]) -> bool:
    return new[: len(old)] == old and len(new) <= len(old) + 1


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise PatchError(f"the patch changes what it must not: {what}")
