"""openFiles: give containers limits on open files that do not depend on the node.

A container inherits RLIMIT_NOFILE from the unit of the container runtime (kubernetes issue 3595).
Under `infinity`, programs that visit or allocate the whole table of descriptors take minutes and
gigabytes. Where the unit has no limit, the soft limit is 1,024, which is too low for many servers.
The remedy gives a container today what `securityContext.ulimits` of KEP-5758 will give it: a
wrapper sets the limits, and the command replaces the wrapper. The settings have the names and the
meaning that the KEP gives to the limit `nofile`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from webhook.core.cluster.helper_version import HelperFeature
from webhook.core.cluster.remedy_need import Need
from webhook.core.constants import HELPER_PATH
from webhook.core.decision_input import PodFacts, wrapped_command_of
from webhook.core.globs import ContainerGlobs
from webhook.core.labels import LabelPair, parse_labels
from webhook.core.patch.builder import PodPatch
from webhook.core.pod import Container
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import shell_wrapper
from webhook.core.remedies.base import Context, Remedy
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
from webhook.core.remedies.injected_container import short_container_options
from webhook.core.remedies.policy_nodes import PolicyNodes
from webhook.core.types import StrictModel

_SOFT_ABOVE_HARD = "soft is above hard"
_MAX_OPEN_FILES = 1_048_576
"""The largest limit that KEP-5758 accepts, because it is the largest that most kernels accept."""
_SMALL_SOFT_LIMIT = 1_024
"""The soft limit that POSIX programs expect, and that systemd gives to services."""

_OpenFiles = Annotated[int, Field(ge=1, le=_MAX_OPEN_FILES, json_schema_extra={"format": "int32"})]


class OpenFiles(StrictModel):
    """Settings of the remedy `openFiles`."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.hard) || self.soft <= self.hard",
                    "message": _SOFT_ABOVE_HARD,
                    "fieldPath": ".soft",
                },
                {
                    "rule": "size(self.containers) > 0"
                    " || (has(self.initContainers) && size(self.initContainers) > 0)",
                    "message": WRAPS_NOTHING,
                },
            ]
        }
    )

    soft: _OpenFiles = Field(
        description="The soft limit: how many files a process may open. If the container's hard "
        "limit is lower, the hard limit counts instead."
    )
    hard: _OpenFiles | None = Field(
        default=None,
        description="The hard limit, up to which a program may raise its soft limit. A lower limit "
        "of the container is never raised. Omitted: the container keeps its hard limit.",
    )
    containers: ContainerGlobs = Field(
        default=("*",),
        description="Regular containers to wrap, as globs on their names. Long-running ones too.",
    )
    init_containers: ContainerGlobs = Field(
        default=(),
        description="Init containers to wrap, as globs on their names.",
    )
    node_label: LabelPair | None = Field(
        default=None,
        description="A label KEY=VALUE of the nodes whose limits are unsuitable. Skip the remedy "
        "if the pod could land on known nodes, and none of them has the label.",
    )
    delivery: Delivery = Field(default="Auto", description=DELIVERY_DESCRIPTION)

    @model_validator(mode="after")
    def _has_an_effect(self) -> OpenFiles:
        if self.hard is not None and self.soft > self.hard:
            context = {"message": _SOFT_ABOVE_HARD, "at": ("soft",)}
            raise PydanticCustomError("soft_above_hard", "{message}", context)
        if not self.init_containers and not self.containers:
            raise PydanticCustomError("wraps_nothing", WRAPS_NOTHING)
        return self

    @cached_property
    def label(self) -> tuple[str, str] | None:
        """The key and the value of `nodeLabel`."""
        return None if self.node_label is None else (*parse_labels((self.node_label,)).items(),)[0]

    @cached_property
    def wrapper(self) -> CommandWrapper:
        """What the remedy puts in front of commands."""
        return CommandWrapper(
            {
                shell: self._added_to(shell_wrapper.exec_wrapper(shell))
                for shell in shell_wrapper.SHELLS
            },
            self._added_to([HELPER_PATH, "--"]),
            blocked_reason=lambda command: Reason.PROCESS_ONE if is_systemd(command) else None,
            needs=(HelperFeature.OPEN_FILES, Reason.HELPER_TOO_OLD),
            added_to=self._added_to,
        )

    def _added_to(self, wrapper: Sequence[str]) -> list[str]:
        """Return a wrapper with the limits of the settings."""
        if wrapper[0] != HELPER_PATH:
            return shell_wrapper.with_limits(wrapper, self.soft, self.hard)
        *options, end = wrapper
        limits = f"{self.soft}" if self.hard is None else f"{self.soft}:{self.hard}"
        return [*options, OPEN_FILES_OPTION, limits, end]


def apply(
    pod: PodFacts, settings: OpenFiles, context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    """Wrap each container that the settings select, by the cheapest delivery that works."""
    needed: bool | None = None
    wrapping = CommandWrapping(pod, settings.delivery, context, patch, settings.wrapper)
    for container_list, index, container in selected_containers(
        pod, settings.init_containers, settings.containers
    ):
        if reason := exclusion_reason(container_list, container):
            yield Outcome(reason, container=container.name)
            continue
        layer = _limiting_layer(container.inner_wrapper or container.command or ())
        if layer is not None:
            # The pod's author or another policy may have chosen the limits.
            is_own = has_settings_of(settings.wrapper, layer, shell_wrapper.limits)
            effect = "" if is_own else "given the limits of its wrapper"
            yield wrapping.settled(container_list, index, container, effect)
            continue
        if settings.label is not None:
            if needed is None:
                needed = context.cluster.nodes.may_have_label(
                    *settings.label, context.spec_with_runtime_class(pod, patch)
                )
            if not needed:
                message = f"no node that the pod could land on has the label {settings.node_label}"
                yield Outcome(Reason.NOT_NEEDED, container=container.name, message=message)
                continue
        yield wrapping.wrap(container_list, index, container)
    yield from wrapping.deliver_helper(lambda: short_container_options(pod, context, patch))


def _limiting_layer(command: Sequence[str]) -> list[str] | None:
    """Return the wrapper that limits the open files of a command, or None."""
    for layer in layers(command):
        if layer[0] == HELPER_PATH:
            if OPEN_FILES_OPTION in helper_options(layer):
                return layer
        elif shell_wrapper.sets_limits(layer):
            return layer
    return None


def effect(settings: OpenFiles) -> str:
    """Return what the remedy does to a container."""
    limits = f"a soft limit of {settings.soft:,} open files"
    return f"given {limits}" if settings.hard is None else f"given {limits}, {settings.hard:,} hard"


def hints(settings: OpenFiles) -> Iterator[str]:
    """Yield a hint about a soft limit that is lower than programs expect."""
    if settings.soft < _SMALL_SOFT_LIMIT:
        yield (
            f"soft {settings.soft} is lower than {_SMALL_SOFT_LIMIT:,}, the soft limit that "
            "programs expect: they may fail with `Too many open files`"
        )


def container_sign(container: Container) -> str:
    """Return what the wrapper does, if the container starts it."""
    if _limiting_layer(wrapped_command_of(container)) is None:
        return ""
    return (
        "podsettle's wrapper sets limits on open files before the command starts. The command, its "
        "arguments and its exit code are the same."
    )


def still_needed(settings: OpenFiles, nodes: PolicyNodes) -> Need | None:
    """Return whether a node has the label, or None if the policy names no label."""
    return None if settings.label is None else nodes.with_label(*settings.label)


REMEDY = Remedy(
    name="openFiles",
    description="Set limits on open files before a container's command starts. Otherwise a "
    "container inherits them from the container runtime of its node.",
    settings=OpenFiles,
    apply=apply,
    own_reasons=WRAPPER_REASONS | {
        Reason.NOT_NEEDED, Reason.HELPER_TOO_OLD, Reason.PROCESS_ONE
    },
    effect=effect,
    # Which limits suit a program, only its author knows.
    proposed_settings=None,
    native="most servers have no `command`, and a native policy can neither look their image up "
    "nor bring the helper into a pod",
    container_sign=container_sign,
    undo_in_container=unwrap_container,
    edits=WRAPPER_EDITS,
    needs_entrypoints=True,
    helper_feature=HelperFeature.OPEN_FILES,
    still_needed=still_needed,
    hints=hints,
)  # fmt: skip
