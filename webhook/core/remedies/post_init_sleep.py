"""postInitSleep: keep quick containers alive until the runtime has looked at them.

CRI-O before the releases in `webhook.core.versions` reports exit 255 for a container whose first
process is gone when it asks for its state, right after the start (cri-o issue 9840). What counts
is how long that process lives, so the remedy is a minimum lifetime: the command runs, then the
wrapper sleeps for what is missing, then exits with the command's code.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec
from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from webhook.core import duration, helper, shell_wrapper
from webhook.core.decision import Reason
from webhook.core.duration import Delay
from webhook.core.globs import Glob, compile_globs
from webhook.core.image_config import (
    ImageQuery,
    LookupRules,
    Unavailable,
    architectures,
    escape,
)
from webhook.core.mesh import INIT_CONTAINERS
from webhook.core.names import (
    HELPER,
    HELPER_IN_IMAGE,
    HELPER_MOUNT,
    HELPER_PATH,
    OWN_CONTAINERS,
)
from webhook.core.patch import ContainerList, PodPatch
from webhook.core.remedy import Context, Finding
from webhook.core.review import Container, Pod, PodSpec, Volume, is_set
from webhook.core.schema import Model
from webhook.core.versions import IMAGE_VOLUMES_LOCKED_ON, IMAGE_VOLUMES_ON_BY_DEFAULT


class PostInitSleep(Model):
    """Settings of the remedy `postInitSleep`."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "duration(self.minLifetime) >= duration('1ms')"
                    " || duration(self.sleep) >= duration('1ms')",
                    "message": "minLifetime and sleep are both 0: leave the remedy out instead",
                }
            ]
        }
    )

    when: Literal["NodesNeedIt", "Always"] = Field(
        default="NodesNeedIt",
        description="NodesNeedIt: step aside once no node that the pod could land on runs an "
        "affected CRI-O. Always: whatever the nodes run.",
    )
    min_lifetime: Delay = Field(
        default=500,
        description="A container lives at least this long; a slower command is not held up.",
    )
    sleep: Delay = Field(
        default=10, description="Sleep at least this long once the command has finished."
    )
    init_containers: tuple[Glob, ...] = Field(
        default=("*",), strict=False, description="Init containers to wrap: globs on names."
    )
    containers: tuple[Glob, ...] = Field(
        default=(),
        strict=False,
        description="Regular containers to wrap, in pods whose restartPolicy is Never or "
        "OnFailure: globs on names.",
    )
    delivery: Literal["Auto", "Shell", "Binary", "ImageVolume"] = Field(
        default="Auto",
        description="How the wrapper gets into the container. Shell: a script in the command. "
        "Binary: an init container copies the helper. ImageVolume: the helper's image is mounted "
        "(Kubernetes 1.36). Auto: the cheapest that works.",
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> PostInitSleep:
        if not self.min_lifetime and not self.sleep:
            raise PydanticCustomError(
                "no_effect", "minLifetime and sleep are both 0: leave the remedy out instead"
            )
        return self

    @cached_property
    def wants_init_container(self) -> Callable[[str], bool]:
        """Whether an init container of this name is to be wrapped."""
        return compile_globs(self.init_containers)

    @cached_property
    def wants_container(self) -> Callable[[str], bool]:
        """Whether a regular container of this name is to be wrapped."""
        return compile_globs(self.containers)

    @cached_property
    def helper_command(self) -> list[str]:
        """The helper and its options, up to and including `--`."""
        sleep, least = duration.text(self.sleep), duration.text(self.min_lifetime)
        return [HELPER_PATH, "--sleep", sleep, "--min-lifetime", least, "--"]


@dataclass(frozen=True, slots=True)
class _Target:
    where: ContainerList
    index: int
    container: Container


class _Started(NamedTuple):
    """What a container starts: a command, and the arguments that only its image knows."""

    command: list[str]
    args: list[str] = []  # noqa: RUF012 (nobody changes it)
    of_image: bool = False


def apply(
    pod: Pod, settings: PostInitSleep, context: Context, patch: PodPatch
) -> Iterator[Finding]:
    """Wrap each container that the settings name, once, by the cheapest delivery that works."""
    needed: bool | None = None
    # The same for each container, so asked once: pods of thousands of containers exist.
    no_helper = _helper_objection(pod, settings, context)
    served: list[_Target] = []
    images = _ImagesOfPod(pod, context, patch)
    for where, index, container in _named(pod, settings):
        reason = _unfit(pod, where, container)
        if reason is None and settings.when == "NodesNeedIt":
            if needed is None:
                needed = context.view.nodes.may_lose_exit_codes(context.placed(pod, patch))
            reason = None if needed else Reason.NOT_NEEDED
        if reason is not None:
            yield Finding(reason, container.name)
            continue
        started = _Started(container.command) if container.command else images.started(container)
        if isinstance(started, Finding):
            yield started
            continue
        target = _Target(where, index, container)
        if _takes_shell(container, started.command, settings.delivery):
            yield _wrap_by_shell(target, started, settings, patch)
            continue
        reason = _interactive_or_shell_less(container, settings) or no_helper
        if reason is None and any(map(_takes_mount, _paths(container))):
            reason = Reason.NAME_CONFLICT
        if reason is not None:
            yield Finding(reason, container.name)
            continue
        served.append(target)
        _set_command(target, started, [*settings.helper_command, *started.command], patch)
        patch.add_mount(where, index, {"name": HELPER, "mountPath": HELPER_MOUNT, "readOnly": True})
        message = f"wrapped by the helper from {context.linger_image}"
        yield _applied(target, started, message)
    _bring_helper(pod, served, settings, context, patch)


def _named(pod: Pod, settings: PostInitSleep) -> Iterator[tuple[ContainerList, int, Container]]:
    for index, container in enumerate(pod.spec.init_containers or ()):
        if container.name not in OWN_CONTAINERS and settings.wants_init_container(container.name):
            yield "initContainers", index, container
    if settings.containers:
        for index, container in enumerate(pod.spec.containers or ()):
            if settings.wants_container(container.name):
                yield "containers", index, container


def _unfit(pod: Pod, where: ContainerList, container: Container) -> Reason | None:
    """Why a container is never wrapped, whatever the delivery; None where it may be."""
    if container.restart_policy == "Always" or container.name.startswith("sidecar-"):
        # Tekton stops a sidecar by swapping its image for one in which the command must be absent.
        return Reason.NATIVE_SIDECAR
    if where == "initContainers":
        if container.name in INIT_CONTAINERS:
            return Reason.MESH_INIT_CONTAINER
    elif (
        (pod.spec.restart_policy or "Always") == "Always"
        or is_set(container.liveness_probe)
        or is_set(container.readiness_probe)
        or is_set(container.startup_probe)
    ):
        return Reason.LONG_RUNNING
    command = container.command
    if command and (command[0] == HELPER_PATH or shell_wrapper.is_wrapped(command)):
        return Reason.ALREADY_SETTLED
    return None


class _ImagesOfPod:
    """What the pod's containers start where the pod does not say."""

    def __init__(self, pod: Pod, context: Context, patch: PodPatch) -> None:
        self._pod = pod
        self._context = context
        self._patch = patch

    def started(self, container: Container) -> _Started | Finding:
        """What a container without `command` starts, or why that is not known."""
        rules = self._context.image_rules
        if rules is None:
            return Finding(Reason.NO_COMMAND, container.name)
        if not container.image:
            return _unavailable(container, "the container names no image")
        found = self._context.images.find(self._query(container.image, rules))
        if isinstance(found, Unavailable):
            return _unavailable(container, found.why)
        entrypoint, cmd = ([escape(text) for text in texts] for texts in found)
        if _has_args(container):
            return _Started(entrypoint, of_image=True)
        if not entrypoint and not cmd:
            return _unavailable(container, "the image has neither an Entrypoint nor a Cmd")
        if not entrypoint:
            # Cmd is the command then, perhaps a shell.
            return _Started(cmd, of_image=True)
        return _Started(entrypoint, cmd, of_image=True)

    def _query(self, image: str, rules: LookupRules) -> ImageQuery:
        spec = self._pod.spec
        return ImageQuery(
            image,
            rules,
            self._architectures,
            self._context.namespace.name,
            tuple(secret.name for secret in spec.image_pull_secrets or ()),
            spec.service_account_name or "default",
        )

    @cached_property
    def _architectures(self) -> frozenset[str]:
        placed = self._context.placed(self._pod, self._patch)
        return architectures(self._context.view.nodes, placed)


def _unavailable(container: Container, why: str) -> Finding:
    return Finding(Reason.IMAGE_CONFIG_UNAVAILABLE, container.name, message=why)


def _has_args(container: Container) -> bool:
    return is_set(container.args) and bool(msgspec.json.decode(container.args, type=list[str]))


def _set_command(target: _Target, started: _Started, command: list[str], patch: PodPatch) -> None:
    if started.of_image:
        patch.fill_in(target.where, target.index, started.command, started.args)
    patch.set_command(target.where, target.index, command)


def _applied(target: _Target, started: _Started, message: str) -> Finding:
    if started.of_image:
        message += f", around what its image {target.container.image} starts"
    return Finding(Reason.APPLIED, target.container.name, changed=True, message=message)


def _takes_shell(container: Container, command: list[str], delivery: str) -> bool:
    return (
        delivery in ("Auto", "Shell")
        and bool(command)
        and shell_wrapper.is_shell(command[0])
        and not container.stdin
        and not container.tty
    )


def _wrap_by_shell(
    target: _Target, started: _Started, settings: PostInitSleep, patch: PodPatch
) -> Finding:
    command = shell_wrapper.wrap(
        started.command, sleep_ms=settings.sleep, min_lifetime_ms=settings.min_lifetime
    )
    _set_command(target, started, command, patch)
    return _applied(target, started, f"wrapped by its own shell, {started.command[0]}")


def _interactive_or_shell_less(container: Container, settings: PostInitSleep) -> Reason | None:
    """Why `delivery: Shell` cannot be had."""
    if settings.delivery != "Shell":
        return None
    return Reason.INTERACTIVE if container.stdin or container.tty else Reason.NO_SHELL


def _helper_objection(pod: Pod, settings: PostInitSleep, context: Context) -> Reason | None:
    """Why the helper cannot be brought into the pod; None where it can."""
    if context.linger_image is None:
        return Reason.HELPER_IMAGE_MISSING
    if any(other.name == HELPER for other in pod.spec.containers or ()):
        return Reason.NAME_CONFLICT
    volume = _helper_volume(pod)
    if volume is not None and not is_set(volume.empty_dir) and not is_set(volume.image):
        return Reason.NAME_CONFLICT
    index = _helper_index(pod)
    if index is not None:
        command = (pod.spec.init_containers or [])[index].command
        if not command or command[0] != HELPER_IN_IMAGE:
            return Reason.NAME_CONFLICT
    if settings.delivery == "ImageVolume":
        server = context.view.server_version
        if (server and server < IMAGE_VOLUMES_ON_BY_DEFAULT) or (
            context.view.nodes.may_lack_image_volumes(pod.spec)
        ):
            return Reason.SERVER_TOO_OLD
    return None


def _paths(container: Container) -> Iterator[str]:
    for mount in container.volume_mounts or ():
        yield mount.mount_path
    for device in container.volume_devices or ():
        yield device.device_path


def _takes_mount(path: str) -> bool:
    """Whether a path is the helper's or lies below it. The kubelet makes paths absolute."""
    absolute = posixpath.normpath("/" + path.lstrip("/"))
    return f"{absolute}/".startswith(f"{HELPER_MOUNT}/")


def _bring_helper(
    pod: Pod, served: list[_Target], settings: PostInitSleep, context: Context, patch: PodPatch
) -> None:
    """Make sure that the helper is there before the first container that starts with it."""
    volume, index = _helper_volume(pod), _helper_index(pod)
    if served and volume is None:
        if _by_image_volume(context.placed(pod, patch), settings, context):
            image = {"reference": context.linger_image, "pullPolicy": "IfNotPresent"}
            patch.add_volume({"name": HELPER, "image": image})
            return
        # In memory: a disk may be mounted noexec, and the cluster autoscaler takes an emptyDir on
        # disk for data that keeps a node from being removed.
        patch.add_volume({"name": HELPER, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}})
    if volume is not None and is_set(volume.image):
        return
    if index is None:
        if served:
            container = _copying_container(pod, served[0].container, settings, context)
            patch.put_init_container_first(container)
        return
    # Another webhook may have put init containers before the helper since it was injected.
    wrapped_now = {target.index for target in served if target.where == "initContainers"}
    before = (pod.spec.init_containers or [])[:index]
    if any(
        position in wrapped_now or (container.command or [""])[0] == HELPER_PATH
        for position, container in enumerate(before)
    ):
        patch.move_init_container_first(index)


def _by_image_volume(spec: PodSpec, settings: PostInitSleep, context: Context) -> bool:
    if settings.delivery == "ImageVolume":
        return True
    server = context.view.server_version
    return (
        settings.delivery == "Auto"
        and (server is None or server >= IMAGE_VOLUMES_LOCKED_ON)
        # Without a server to ask, its nodes tell: a kubelet is never newer than its API server.
        and context.view.nodes.mount_image_volumes(spec)
    )


def _helper_volume(pod: Pod) -> Volume | None:
    return next((volume for volume in pod.spec.volumes or () if volume.name == HELPER), None)


def _helper_index(pod: Pod) -> int | None:
    inits = enumerate(pod.spec.init_containers or ())
    return next((index for index, container in inits if container.name == HELPER), None)


def _copying_container(
    pod: Pod, served: Container, settings: PostInitSleep, context: Context
) -> dict[str, Any]:
    """The init container that copies the helper into the shared volume."""
    return {
        **helper.container(HELPER, context.linger_image or "", pod, served),
        # It is as quick as any, so it has to settle as well.
        "command": [HELPER_IN_IMAGE, *settings.helper_command[1:], HELPER_IN_IMAGE],
        "args": ["install", HELPER_PATH],
        "volumeMounts": [{"name": HELPER, "mountPath": HELPER_MOUNT}],
    }
