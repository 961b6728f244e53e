"""postInitSleep: keep containers that end quickly alive until CRI-O has read their state.

CRI-O asks for a container's state right after the start. If the container's first process has ended
by then, CRI-O reports exit code 255 (cri-o issue 9840; webhook/core/defects/cri-o-9840.yaml lists
the releases with the fix). So the remedy gives that process a minimum lifetime: a wrapper runs the
command, sleeps for the rest of the time, and exits with the command's exit code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from webhook.core.command_line import starts_init, traps_interrupt
from webhook.core.constants import HELPER_IN_IMAGE, HELPER_PATH
from webhook.core.decision_input import ContainerFacts, PodFacts, wrapped_command_of
from webhook.core.durations import Delay, format_duration, parse_duration
from webhook.core.globs import ContainerGlobs
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.received_command import ContainerList
from webhook.core.pod import Container, restarts_always
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import shell_wrapper
from webhook.core.remedies.base import Context, FoundContainers, Remedy
from webhook.core.remedies.command_wrapper import (
    DELIVERY_DESCRIPTION,
    OPEN_FILES_OPTION,
    WRAPPER_EDITS,
    WRAPPER_REASONS,
    WRAPS_NOTHING,
    CommandWrapper,
    CommandWrapping,
    Delivery,
    exclusion_reason,
    has_settings_of,
    helper_options,
    is_systemd,
    layers,
    selected_containers,
    unwrap_container,
)
from webhook.core.types import StrictModel

_SLEEP_OPTION, _MIN_LIFETIME_OPTION = "--sleep", "--min-lifetime"


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
                    "message": WRAPS_NOTHING,
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
    init_containers: ContainerGlobs = Field(
        default=("*",),
        description="Init containers to wrap, as globs on their names.",
    )
    containers: ContainerGlobs = Field(
        default=(),
        description="Regular containers to wrap, as globs on their names. Only those that do "
        "not restart always.",
    )
    delivery: Delivery = Field(default="Auto", description=DELIVERY_DESCRIPTION)

    @model_validator(mode="after")
    def _has_an_effect(self) -> PostInitSleep:
        if not self.min_lifetime and not self.sleep:
            raise PydanticCustomError(
                "no_effect", "minLifetime and sleep are both 0: leave the remedy out instead"
            )
        if not self.init_containers and not self.containers:
            raise PydanticCustomError("wraps_nothing", WRAPS_NOTHING)
        return self

    @cached_property
    def wrapper(self) -> CommandWrapper:
        """What the remedy puts in front of commands."""
        in_shell = {
            shell: shell_wrapper.wrapper(
                shell, sleep_ms=self.sleep, min_lifetime_ms=self.min_lifetime
            )
            for shell in shell_wrapper.SHELLS
        }
        sleep, least = format_duration(self.sleep), format_duration(self.min_lifetime)
        helper_command = [HELPER_PATH, _SLEEP_OPTION, sleep, _MIN_LIFETIME_OPTION, least, "--"]
        return CommandWrapper(
            in_shell,
            helper_command,
            blocked_reason=_wrapper_blocked_reason,
            script_blocked_reason=_script_blocked_reason,
        )


def apply(
    pod: PodFacts, settings: PostInitSleep, context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    """Wrap each container that the settings select, by the cheapest delivery that works."""
    nodes_need_it: bool | None = None
    wrapping = CommandWrapping(pod, settings.delivery, context, patch, settings.wrapper)
    for container_list, index, container in selected_containers(
        pod, settings.init_containers, settings.containers
    ):
        reason = _exclusion_reason(pod, container_list, container)
        if reason is None and settings.when == "NodesNeedIt":
            if nodes_need_it is None:
                spec = context.spec_with_runtime_class(pod, patch)
                nodes_need_it = context.cluster.nodes.need("postInitSleep", spec)
            reason = None if nodes_need_it else Reason.NOT_NEEDED
        if reason is Reason.ALREADY_SETTLED:
            # The pod's author or another policy may have chosen the durations.
            layer = _delaying_layer(container.inner_wrapper or container.command or ()) or ()
            is_own = has_settings_of(settings.wrapper, layer, shell_wrapper.durations)
            effect = "" if is_own else "kept alive for as long as its wrapper says"
            yield wrapping.settled(container_list, index, container, effect)
        elif reason is not None:
            yield Outcome(reason, container=container.name)
        else:
            yield wrapping.wrap(container_list, index, container)
    yield from wrapping.deliver_helper(lambda: settings.wrapper.helper_command[1:])


def _exclusion_reason(
    pod: PodFacts, container_list: ContainerList, container: ContainerFacts
) -> Reason | None:
    """Return why a container must not be wrapped, or None if it may be wrapped."""
    if reason := exclusion_reason(container_list, container):
        return reason
    if container_list == "containers" and (
        restarts_always(container, pod.restart_policy)
        or container.liveness_probe is not None
        or container.readiness_probe is not None
        or container.startup_probe is not None
    ):
        return Reason.LONG_RUNNING
    if is_kept_alive(container.inner_wrapper or container.command or ()):
        return Reason.ALREADY_SETTLED
    # Katib's metrics collector waits for the first process of another container, and reads the file
    # that the command has named after its own (katib `pkg/metricscollector/v1beta1/common/pns.go`).
    waits_for_it = container_list == "containers" and pod.share_process_namespace
    return Reason.PROCESS_ONE if waits_for_it or container.starts_init else None


_INITS = frozenset({"k3s", "rke2", "runit"})
"""The names of programs that work only as process 1, beside systemd and `/init` of s6-overlay.

runit says "must be run as process no 1". Only then, k3s and rke2 empty the root cgroup, without
which their kubelet does not start (k3s `pkg/cli/cmds/init_linux.go`, k3s issue 5123).
"""


def _wrapper_blocked_reason(command: Sequence[str]) -> Reason | None:
    """Return why nothing may stay in front of a command as process 1, or None if something may."""
    program = command[0] if command else ""
    is_init = program.rpartition("/")[2] in _INITS or is_systemd(command) or starts_init(command)
    return Reason.PROCESS_ONE if is_init else None


def _script_blocked_reason(container: ContainerFacts, strings: Sequence[str]) -> Reason | None:
    """Return why the script cannot run a container's command in the background, or None.

    `strings` are the command and the arguments from the image.
    """
    if container.stdin or container.tty:
        return Reason.INTERACTIVE
    # For Airflow's XCom sidecar, SIGINT is the normal end: `trap "exit 0" INT`.
    if (container.traps_interrupt or traps_interrupt(strings)) and (
        shell_wrapper.is_shell_that_ignores_interrupts(strings)
    ):
        return Reason.TRAPS_INTERRUPT
    return None


def _delaying_layer(command: Sequence[str]) -> list[str] | None:
    """Return the wrapper that delays the exit of a command, or None.

    A wrapper of another version delays it, and so does a helper that a client wrote, unless it
    visibly does no more than to limit open files.
    """
    for layer in layers(command):
        if layer[0] == HELPER_PATH:
            if helper_options(layer).keys() != {OPEN_FILES_OPTION}:
                return layer
        elif not shell_wrapper.has_no_delay(layer):
            return layer
    return None


def effect(settings: PostInitSleep) -> str:
    """Return what the remedy does to a container."""
    if settings.min_lifetime:
        return f"kept alive for at least {format_duration(settings.min_lifetime, separator=' ')}"
    return f"kept alive for {format_duration(settings.sleep, separator=' ')} after the command ends"


# The figures are those of docs/exit-255.md and of the defect cri-o-9840.
_SAFE_MIN_LIFETIME_MS = 250


def hints(settings: PostInitSleep) -> Iterator[str]:
    """Yield a hint about a `minLifetime` that is too short."""
    if settings.min_lifetime < _SAFE_MIN_LIFETIME_MS:
        yield (
            f"minLifetime {format_duration(settings.min_lifetime)} is short: when the race was "
            "provoked on CRI-O 1.33.12, 100 ms lost up to 1.7 % of exit codes, 50 ms up to 17 %, "
            "250 ms none of 840, but 1 of 34 on a busy node"
        )


def proposed_settings(found: FoundContainers) -> object:
    """Return settings that select exactly the containers that were found."""
    if not found.regular:
        return {"initContainers": list(found.init)}
    return {"initContainers": list(found.init), "containers": list(found.regular)}


def kept_alive_ms(command: Sequence[str]) -> int | None:
    """Return for how long a wrapper keeps its container alive at least.

    The container may be a gate, or the one that copies the helper. Return None if nothing says the
    time.
    """
    layer = command if command[:1] == [HELPER_IN_IMAGE] else _delaying_layer(command)
    if layer is None:
        return None
    try:
        if layer[0] not in (HELPER_IN_IMAGE, HELPER_PATH):
            before_sleep, sleep = shell_wrapper.durations(layer)
            return parse_duration(f"{before_sleep}s") + parse_duration(f"{sleep}s")
        options = helper_options(layer)
        delays = (options.get(each, "0") for each in (_SLEEP_OPTION, _MIN_LIFETIME_OPTION))
        return max(map(parse_duration, delays))
    except ValueError:  # A client may have written the command.
        return None


def is_kept_alive(command: Sequence[str]) -> bool:
    """Return whether a wrapper of podsettle delays the exit of a command."""
    return _delaying_layer(command) is not None


def container_sign(container: Container) -> str:
    """Return what the wrapper does, if the container starts it."""
    if not is_kept_alive(wrapped_command_of(container)):
        return ""
    return (
        "podsettle's wrapper runs the command, and keeps the container alive for a short time. "
        "The command, its arguments and its exit code are the same."
    )


REMEDY = Remedy(
    name="postInitSleep",
    description="Keep containers that end quickly alive for longer. Otherwise CRI-O may report "
    "exit code 255 for them.",
    settings=PostInitSleep,
    apply=apply,
    own_reasons=WRAPPER_REASONS | {
        Reason.NOT_NEEDED, Reason.LONG_RUNNING, Reason.INTERACTIVE, Reason.TRAPS_INTERRUPT,
        Reason.PROCESS_ONE,
    },
    effect=effect,
    proposed_settings=proposed_settings,
    native="it wraps commands, and a native policy can neither look an image up nor bring the "
    "helper into a pod",
    container_sign=container_sign,
    undo_in_container=unwrap_container,
    edits=WRAPPER_EDITS,
    hints=hints,
)  # fmt: skip
