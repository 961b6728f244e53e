"""postInitSleep: keep containers that end quickly alive until CRI-O has read their state.

CRI-O asks for a container's state right after the start. If the container's first process has ended
by then, CRI-O reports exit code 255 (cri-o issue 9840; webhook/core/defects/cri-o-9840.yaml lists
the releases with the fix). So the remedy gives that process a minimum lifetime: a wrapper runs the
command, sleeps for the rest of the time, and exits with the command's exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from webhook.core.cel import all_of, indent, quote, quote_raw, quoted_list
from webhook.core.cluster.view import ClusterFacts
from webhook.core.constants import HELPER, HELPER_MOUNT, HELPER_PATH, OWN_CONTAINERS
from webhook.core.decision_input import ContainerFacts, PodFacts
from webhook.core.durations import Delay, format_duration, parse_duration
from webhook.core.globs import ContainerGlob, compile_globs, native_match
from webhook.core.patch.builder import ContainerList, PodPatch
from webhook.core.patch.edits import Edit
from webhook.core.pod import Container, is_sidecar
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import shell_wrapper
from webhook.core.remedies.base import Context, FoundContainers, Remedy
from webhook.core.remedies.helper_delivery import DELIVERY_REASONS, HelperDelivery
from webhook.core.remedies.image_commands import IMAGE_REASONS, ImageCommand, ImageCommands
from webhook.core.remedies.native import Native, NativeRemedy, NotNativeError
from webhook.core.remedies.service_mesh import MESH_INIT_CONTAINERS
from webhook.core.types import StrictModel

_WRAPS_NOTHING = (
    "initContainers and containers are both empty, so nothing is wrapped: leave the remedy out "
    "instead"
)


class PostInitSleep(StrictModel):
    """Settings of the remedy `postInitSleep`."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "duration(self.minLifetime) >= duration('1ms')"
                    " || duration(self.sleep) >= duration('1ms')",
                    "message": "minLifetime and sleep are both 0: leave the remedy out instead",
                },
                {
                    "rule": "size(self.initContainers) > 0"
                    " || (has(self.containers) && size(self.containers) > 0)",
                    "message": _WRAPS_NOTHING,
                },
            ]
        }
    )

    when: Literal["NodesNeedIt", "Always"] = Field(
        default="NodesNeedIt",
        description="NodesNeedIt: skip the remedy if no node that the pod could land on runs an "
        "affected CRI-O. Always: apply it on all nodes.",
    )
    min_lifetime: Delay = Field(
        default=500,
        description="A container lives at least this long. A command that takes longer is not "
        "delayed by this setting.",
    )
    sleep: Delay = Field(
        default=10, description="Sleep at least this long after the command has finished."
    )
    init_containers: tuple[ContainerGlob, ...] = Field(
        default=("*",),
        strict=False,
        description="Init containers to wrap, as globs on their names.",
    )
    containers: tuple[ContainerGlob, ...] = Field(
        default=(),
        strict=False,
        description="Regular containers to wrap, as globs on their names. Only in pods whose "
        "restartPolicy is Never or OnFailure.",
    )
    delivery: Literal["Auto", "Shell", "Binary", "ImageVolume"] = Field(
        default="Auto",
        description="How the wrapper gets into the container. Shell: as a script in the command. "
        "Binary: an init container copies the helper. ImageVolume: the helper's image is mounted "
        "(Kubernetes 1.35). Auto: the cheapest way that works, which includes ImageVolume from "
        "Kubernetes 1.36 on.",
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> PostInitSleep:
        if not self.min_lifetime and not self.sleep:
            raise PydanticCustomError(
                "no_effect", "minLifetime and sleep are both 0: leave the remedy out instead"
            )
        if not self.init_containers and not self.containers:
            raise PydanticCustomError("wraps_nothing", _WRAPS_NOTHING)
        return self

    @cached_property
    def wants_init_container(self) -> Callable[[str], bool]:
        """A predicate: whether the settings select the init container with a name."""
        return compile_globs(self.init_containers)

    @cached_property
    def wants_container(self) -> Callable[[str], bool]:
        """A predicate: whether the settings select the regular container with a name."""
        return compile_globs(self.containers)

    @cached_property
    def shell_wrappers(self) -> dict[str, list[str]]:
        """For each shell, the wrapper to put before a command that starts with this shell."""
        sleep, least = self.sleep, self.min_lifetime
        return {
            shell: shell_wrapper.wrapper(shell, sleep_ms=sleep, min_lifetime_ms=least)
            for shell in shell_wrapper.SHELLS
        }

    @cached_property
    def helper_command(self) -> list[str]:
        """The helper's path and options, up to and including `--`."""
        sleep, least = format_duration(self.sleep), format_duration(self.min_lifetime)
        return [HELPER_PATH, "--sleep", sleep, "--min-lifetime", least, "--"]


class _Target(NamedTuple):
    """A container to wrap."""

    container_list: ContainerList
    container_index: int
    """The index of the container in its list."""
    container: ContainerFacts
    image_command: ImageCommand | None
    """The command from the image. None if the container has a `command`."""


def apply(
    pod: PodFacts, settings: PostInitSleep, context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    """Wrap each container that the settings select, by the cheapest delivery that works."""
    nodes_need_it: bool | None = None
    helper = HelperDelivery(pod, settings.delivery, context, patch)
    images: ImageCommands | None = None
    wrapped_by_helper: list[_Target] = []
    for container_list, index, container in _selected_containers(pod, settings):
        reason = _exclusion_reason(pod, container_list, container)
        if reason is None and settings.when == "NodesNeedIt":
            if nodes_need_it is None:
                nodes_need_it = context.cluster.nodes.need(
                    "postInitSleep", context.spec_with_runtime_class(pod, patch)
                )
            reason = None if nodes_need_it else Reason.NOT_NEEDED
        if reason is Reason.ALREADY_SETTLED and not _has_durations_of(settings, container):
            # The pod's author or another policy chose the durations.
            effect = "kept alive for as long as its wrapper says"
            yield Outcome(reason, container=container.name, effect=effect)
            continue
        if reason is not None:
            yield Outcome(reason, container=container.name)
            continue
        image_command = None
        if container.entrypoint_image is not None:
            images = images or ImageCommands(pod, context, patch)
            command_or_outcome = images.command_of(container, container.entrypoint_image)
            if isinstance(command_or_outcome, Outcome):
                yield command_or_outcome
                continue
            image_command = command_or_outcome
        target = _Target(container_list, index, container, image_command)
        command = image_command.command if image_command else container.command or []
        if _uses_shell(container, command, settings.delivery):
            shell = command[0]
            _wrap(target, settings.shell_wrappers[shell], patch)
            yield _applied_outcome(target, f"wrapped by its own shell, {shell}")
            continue
        reason = _shell_blocked_reason(container, settings) or helper.blocked_reason()
        if reason is None and container.mounts_over_helper:
            reason = Reason.NAME_CONFLICT
        if reason is not None:
            yield Outcome(reason, container=container.name)
            continue
        wrapped_by_helper.append(target)
        _wrap(target, settings.helper_command, patch)
        patch.add_mount(container_list, index, _HELPER_MOUNT)
        yield _applied_outcome(target, f"wrapped by the helper from {context.cluster.linger_image}")
    wrapped_indices = {
        target.container_index
        for target in wrapped_by_helper
        if target.container_list == "initContainers"
    }
    helper.inject(
        wrapped_by_helper[0].container if wrapped_by_helper else None,
        wrapped_indices,
        settings.helper_command,
    )


_HELPER_MOUNT = {"name": HELPER, "mountPath": HELPER_MOUNT, "readOnly": True}


def _selected_containers(
    pod: PodFacts, settings: PostInitSleep
) -> Iterator[tuple[ContainerList, int, ContainerFacts]]:
    """Yield each container that the settings select, with its list and its index in the list."""
    for index, container in enumerate(pod.init_containers or ()):
        if container.name not in OWN_CONTAINERS and settings.wants_init_container(container.name):
            yield "initContainers", index, container
    if settings.containers:
        for index, container in enumerate(pod.containers or ()):
            if settings.wants_container(container.name):
                yield "containers", index, container


def _exclusion_reason(
    pod: PodFacts, container_list: ContainerList, container: ContainerFacts
) -> Reason | None:
    """Return why a container must not be wrapped, or None if it may be wrapped."""
    if is_sidecar(container):
        return Reason.NATIVE_SIDECAR
    if container_list == "initContainers":
        if container.name in MESH_INIT_CONTAINERS:
            return Reason.MESH_INIT_CONTAINER
    elif (
        (pod.restart_policy or "Always") == "Always"
        or container.liveness_probe is not None
        or container.readiness_probe is not None
        or container.startup_probe is not None
    ):
        return Reason.LONG_RUNNING
    if container.starts_helper or shell_wrapper.is_wrapped(container.command or []):
        return Reason.ALREADY_SETTLED
    return None


def _has_durations_of(settings: PostInitSleep, container: ContainerFacts) -> bool:
    """Return whether the wrapper of a container has the durations of the settings."""
    command = container.command or []
    if container.starts_helper:
        wrapper = settings.helper_command
        return list(command[: len(wrapper)]) == wrapper
    wrapper = settings.shell_wrappers[command[0]]
    return shell_wrapper.durations(command) == shell_wrapper.durations(wrapper)


def _wrap(target: _Target, wrapper: Sequence[str], patch: PodPatch) -> None:
    """Put the wrapper before the command of the container or of its image."""
    container_list, index, _, image_command = target
    if image_command is None:
        patch.wrap(container_list, index, wrapper)
    else:
        patch.wrap_image_command(
            container_list, index, wrapper, image_command.command, image_command.args
        )


def _applied_outcome(target: _Target, message: str) -> Outcome:
    image = target.container.entrypoint_image
    if image is not None:
        message += f", around what its image {image.reference} starts"
    return Outcome(Reason.APPLIED, container=target.container.name, changed=True, message=message)


def _uses_shell(container: ContainerFacts, command: Sequence[str], delivery: str) -> bool:
    """Return whether the shell with which the command starts can run the wrapper."""
    return (
        delivery in ("Auto", "Shell")
        and bool(command)
        and shell_wrapper.is_shell(command[0])
        and not container.stdin
        and not container.tty
    )


def _shell_blocked_reason(container: ContainerFacts, settings: PostInitSleep) -> Reason | None:
    """Return why a shell cannot wrap a container, if the policy allows no other delivery."""
    if settings.delivery != "Shell":
        return None
    return Reason.INTERACTIVE if container.stdin or container.tty else Reason.NO_SHELL


def effect(settings: PostInitSleep) -> str:
    """Return what the remedy does to a container."""
    if settings.min_lifetime:
        return f"kept alive for at least {format_duration(settings.min_lifetime, separator=' ')}"
    return f"kept alive for {format_duration(settings.sleep, separator=' ')} after the command ends"


# With 250 ms, CRI-O lost none of 840 exit codes. With 100 ms, it lost up to 1.7 % of them (README,
# Limits).
_SAFE_MIN_LIFETIME_MS = 250


def hints(settings: PostInitSleep) -> Iterator[str]:
    """Yield a hint about a `minLifetime` that is too short."""
    if settings.min_lifetime < _SAFE_MIN_LIFETIME_MS:
        yield (
            f"minLifetime {format_duration(settings.min_lifetime)} is short: when the race was "
            "provoked on CRI-O 1.33.12, 100 ms lost up to 1.7 % of exit codes, 50 ms up to 17 %, "
            "and 250 ms none of 840"
        )


def proposed_settings(found: FoundContainers) -> object:
    """Return settings that select exactly the containers that were found."""
    if not found.regular:
        return {"initContainers": list(found.init)}
    return {"initContainers": list(found.init), "containers": list(found.regular)}


def unwrapped(command: list[str]) -> list[str]:
    """Return the command that a wrapper runs. A command without a wrapper is returned itself."""
    if command[:1] == [HELPER_PATH] and "--" in command:
        return command[command.index("--") + 1 :]
    return shell_wrapper.unwrapped(command)


def kept_alive_ms(command: list[str]) -> int | None:
    """Return for how long a wrapper keeps its container alive at least.

    `command` begins with the helper or with the script. Return None if it does not say the time.
    """
    try:
        if shell_wrapper.is_wrapped(command):
            before_sleep, sleep = shell_wrapper.durations(command)
            return parse_duration(f"{before_sleep}s") + parse_duration(f"{sleep}s")
        _, _, sleep, _, min_lifetime, *_ = command
        return max(parse_duration(sleep), parse_duration(min_lifetime))
    except ValueError:  # A client may have written the command.
        return None


def container_sign(container: Container) -> str:
    """Return what the wrapper does, if the container starts it."""
    command = container.command
    if not command or not (command[0] == HELPER_PATH or shell_wrapper.is_wrapped(command)):
        return ""
    return (
        "podsettle's wrapper runs the command, and keeps the container alive for a short time. "
        "The command, its arguments and its exit code are the same."
    )


def native(settings: PostInitSleep, _cluster: ClusterFacts) -> NativeRemedy:
    """Return the remedy as CEL expressions. Raises NotNativeError unless `delivery` is `Shell`."""
    if settings.delivery != "Shell":
        raise NotNativeError(
            f"delivery: {settings.delivery} may need the helper, which a native policy cannot "
            "bring into a pod; delivery: Shell does without it"
        )
    _shell, option, script, *arguments = settings.shell_wrappers["sh"]
    wrapper_items = f"{quote(option)}, variables.script, {', '.join(map(quote, arguments))}"
    conditions, patch, names = [], [], []
    variables = {"script": quote_raw(script)}
    for container_list, variable, selected in (
        ("initContainers", "initContainersToWrap", _native_init_container(settings)),
        ("containers", "containersToWrap", _native_container(settings)),
    ):
        if not selected:
            continue
        to_wrap = all_of(
            *selected,
            '!c.name.startsWith("sidecar-")',
            'c.?restartPolicy.orValue("") != "Always"',
            "!has(c.stdin)",
            "!has(c.tty)",
            "has(c.command)",
            shell_wrapper.native_is_shell("c.command[0]"),
            f"!({shell_wrapper.native_is_wrapped('c.command')})",
        )
        wrapped = shell_wrapper.native_is_wrapped("c.command", durations=arguments[1:])
        items = f"object.spec.?{container_list}.orValue([])"
        command = f"{container_list}[i].command"
        conditions.append(f"{items}.exists(c,\n  {indent(to_wrap)})")
        variables[variable] = f"{items}.transformList(i, c,\n  {indent(to_wrap)},\n  i)"
        patch.append(
            f"variables.{variable}.map(i, JSONPatch{{\n"
            f'  op: "replace", path: "/spec/{container_list}/" + string(i) + "/command",\n'
            f"  value: [string(object.spec.{command}[0]), {wrapper_items}]\n"
            f"    + object.spec.{command}}})"
        )
        names.append(
            f"{items}.transformList(i, c,\n  i in variables.{variable}\n"
            f"  || (variables.postInitSleepBefore && has(c.command)\n    && {wrapped}),\n"
            "  c.name)"
        )
    return NativeRemedy(
        condition="\n|| ".join(conditions),
        patch=tuple(patch),
        variables=variables,
        containers="\n+ ".join(names),
    )


def _native_init_container(settings: PostInitSleep) -> list[str]:
    """Return when the settings select an init container `c`, in CEL. Empty if they do not."""
    if not settings.init_containers:
        return []
    never = quoted_list(sorted(MESH_INIT_CONTAINERS | OWN_CONTAINERS))
    return [*native_match(settings.init_containers, "c.name"), f"!(c.name in {never})"]


def _native_container(settings: PostInitSleep) -> list[str]:
    """Return when the settings select a regular container `c`, in CEL. Empty if they do not."""
    if not settings.containers:
        return []
    probes = ("livenessProbe", "readinessProbe", "startupProbe")
    return [
        *native_match(settings.containers, "c.name"),
        'object.spec.restartPolicy != "Always"',
        *(f"!has(c.{probe})" for probe in probes),
    ]


REMEDY = Remedy(
    name="postInitSleep",
    description="Keep containers that end quickly alive for longer. Otherwise CRI-O may report "
    "exit code 255 for them.",
    settings=PostInitSleep,
    apply=apply,
    reasons=DELIVERY_REASONS | IMAGE_REASONS | {
        Reason.APPLIED, Reason.ALREADY_SETTLED, Reason.NATIVE_SIDECAR, Reason.MESH_INIT_CONTAINER,
        Reason.LONG_RUNNING, Reason.NOT_NEEDED, Reason.NO_SHELL, Reason.INTERACTIVE,
    },
    effect=effect,
    proposed_settings=proposed_settings,
    native=Native(
        "kept alive",
        native,
        # The other deliveries wrap the containers with a shell too.
        guarded=lambda settings: settings.model_copy(update={"delivery": "Shell"}),
        limits="only `delivery: Shell`, without `imageConfig`",
    ),
    container_sign=container_sign,
    edits=frozenset({Edit.COMMAND, Edit.MOUNT, Edit.VOLUME, Edit.INIT_CONTAINER}),
    hints=hints,
)  # fmt: skip
