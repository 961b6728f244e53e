"""The wrapper in front of a container's command, which the remedies that wrap commands share.

A wrapper is the helper with options, or a script for the shell with which the command starts. Two
remedies of one decision make one wrapper. A container that an earlier call of the webhook has
wrapped for one remedy gets a second layer for the other one. The outer layer then executes the
inner one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from webhook.core.cluster.helper_version import HelperFeature
from webhook.core.command_line import without_wrappers, wrapper_index
from webhook.core.constants import (
    HELPER,
    HELPER_MOUNT,
    HELPER_PATH,
    OWN_CONTAINERS,
    SCRIPT_NAME,
)
from webhook.core.decision_input import MAX_WRAPPER_STRINGS, ContainerFacts, PodFacts
from webhook.core.globs import compile_globs
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.edits import Edit
from webhook.core.patch.received_command import ContainerList
from webhook.core.pod import is_sidecar
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import file_capabilities, shell_wrapper
from webhook.core.remedies.base import Context
from webhook.core.remedies.helper_delivery import DELIVERY_REASONS, HelperDelivery
from webhook.core.remedies.image_commands import IMAGE_REASONS, ImageCommands
from webhook.core.remedies.service_mesh import is_mesh_init_container

Delivery: TypeAlias = Literal["Auto", "Shell", "Binary", "ImageVolume"]
"""How a wrapper gets into a container."""
DELIVERY_DESCRIPTION = (
    "How the wrapper gets into the container. Shell: as a script in the command. Binary: an init "
    "container copies the helper. ImageVolume: the helper's image is mounted (Kubernetes 1.35). "
    "Auto: the cheapest way that works, which includes ImageVolume from Kubernetes 1.36 on."
)
WRAPPER_EDITS = frozenset({Edit.COMMAND, Edit.MOUNT, Edit.VOLUME, Edit.INIT_CONTAINER})
WRAPPER_REASONS = (
    DELIVERY_REASONS
    | IMAGE_REASONS
    | {Reason.NO_SHELL, Reason.FILE_CAPABILITIES, Reason.NOT_APPLICABLE, Reason.NATIVE_SIDECAR}
    | {Reason.MESH_INIT_CONTAINER}
)
"""The reasons for which a container that a remedy selects is not wrapped."""

WRAPS_NOTHING = (
    "initContainers and containers are both empty, so nothing is wrapped: leave the remedy out "
    "instead"
)
"""The problem of a policy whose remedy selects no containers."""

OPEN_FILES_OPTION = "--open-files"
"""The helper's option that limits open files."""

MAX_LAYERS = 4
"""The maximum number of layers that are read. podsettle writes at most two."""
_MAX_OPTION_STRINGS = 16
"""The maximum number of strings between the helper's path and `--`. podsettle writes six."""
_HELPER_MOUNT = {"name": HELPER, "mountPath": HELPER_MOUNT, "readOnly": True}


class CommandWrapper(NamedTuple):
    """What a remedy puts in front of commands."""

    in_shell: Mapping[str, list[str]]
    """For each shell, the strings to put in front of a command that starts with it."""
    helper_command: list[str]
    """The helper's path and options, up to and including `--`."""
    blocked_reason: Callable[[Sequence[str]], Reason | None]
    """Return why no wrapper may stand in front of a command, or None if one may. Behind the command
    are the arguments from the image."""
    script_blocked_reason: Callable[[ContainerFacts, Sequence[str]], Reason | None] | None = None
    """Return why the script cannot wrap a container, or None if it can. The strings are the command
    and the arguments from the image."""
    needs: tuple[HelperFeature, Reason] | None = None
    """What the helper has to support, and the reason if it does not. None if any helper does."""
    added_to: Callable[[Sequence[str]], list[str]] | None = None
    """Return a wrapper that an earlier remedy of the decision made, with what this one adds."""


class CommandWrapping:
    """The wrapping of the containers of one pod for one remedy."""

    def __init__(
        self,
        pod: PodFacts,
        delivery: Delivery,
        context: Context,
        patch: PodPatch,
        wrapper: CommandWrapper,
    ) -> None:
        self._pod = pod
        self._delivery = delivery
        self._context = context
        self._patch = patch
        self._wrapper = wrapper
        self._helper = HelperDelivery(pod, delivery, context, patch)
        self._images: ImageCommands | None = None
        self._wrapped: ContainerFacts | None = None
        """The first container that the helper wraps."""
        self._wrapped_inits: set[int] = set()
        """The indices of the init containers that the helper wraps."""
        self._judged: set[tuple[ContainerList, int]] = set()
        """The containers that are wrapped by the helper, or start it without having it."""
        self._restored: ContainerFacts | None = None
        """The first container to which the helper is delivered again."""

    def wrap(self, where: ContainerList, index: int, container: ContainerFacts) -> Outcome:
        """Wrap a container by the cheapest delivery that works, and return the outcome.

        No sidecar may be passed, because its command is unknown.
        """
        wrapper = self._wrapper
        present = self._patch.wrapper(where, index) if wrapper.added_to else None
        if wrapper.added_to and present is not None:
            changed = wrapper.added_to(present)
            too_old = self._too_old(container) if changed[0] == HELPER_PATH else None
            if too_old is None:
                self._patch.change_wrapper(where, index, changed)
            return too_old or _applied_outcome(container, "added to its wrapper")
        image_command = None
        if container.entrypoint_image is not None:
            images = self._images = self._images or ImageCommands(
                self._pod, self._context, self._patch
            )
            command_or_outcome = images.command_of(container, container.entrypoint_image)
            if isinstance(command_or_outcome, Outcome):
                return command_or_outcome
            image_command = command_or_outcome
        command = image_command.command if image_command else container.command or []
        strings = [*command, *image_command.args] if image_command else command
        started = (strings, *_behind_layers(container.inner_wrapper or command))
        reason = next(filter(None, map(wrapper.blocked_reason, started)), None)
        if reason is not None:
            return Outcome(reason, container=container.name)
        if self._delivery in ("Auto", "Shell"):
            shell = command[0] if command and command[0] in shell_wrapper.SHELLS else None
            if shell is not None or self._delivery == "Shell":
                reason = None
                if wrapper.script_blocked_reason is not None:
                    reason = wrapper.script_blocked_reason(container, strings)
                if reason is None and shell is not None:
                    self._patch.wrap(where, index, wrapper.in_shell[shell], image_command)
                    return _wrapped_outcome(container, f"wrapped by its own shell, {shell}")
                if self._delivery == "Shell":
                    return Outcome(reason or Reason.NO_SHELL, container=container.name)
        blocked = self._helper_blocked_outcome(where, index, container)
        if blocked is not None:
            return blocked
        self._wrapped = self._wrapped or container
        if where == "initContainers":
            self._wrapped_inits.add(index)
        self._judged.add((where, index))
        self._patch.wrap(where, index, wrapper.helper_command, image_command)
        if not container.mounts_over_helper and not self._patch.adds_mount(where, index):
            self._patch.add_mount(where, index, _HELPER_MOUNT)
        image = self._pod.helper_image or self._context.cluster.linger_image
        return _wrapped_outcome(container, f"wrapped by the helper from {image}")

    def settled(
        self, where: ContainerList, index: int, container: ContainerFacts, effect: str
    ) -> Outcome:
        """Return the outcome for a container that has the wrapper already.

        `effect` is what that wrapper does, if it is not what the settings say. If the wrapper
        starts a helper that nothing delivers any more, the helper is delivered again.
        """
        if not self._helper.is_lost_to(where, index, container):
            return Outcome(Reason.ALREADY_SETTLED, container=container.name, effect=effect)
        reason = self._helper.blocked_reason
        outcome = (
            Outcome(reason, container=container.name, message=_NOT_DELIVERED)
            if reason is not None
            else self._too_old(container)
        )
        self._judged.add((where, index))
        if outcome is not None:
            return outcome
        self._restored = self._restored or container
        message = f"given the init container {HELPER} again, which copies the helper"
        if not container.mounts_over_helper:
            message = f"given the mount of {HELPER} again, which holds the helper"
            self._patch.add_mount(where, index, _HELPER_MOUNT)
        return Outcome(
            Reason.APPLIED,
            container=container.name,
            changed=True,
            message=message,
            effect="given the helper again that its wrapper starts",
        )

    def deliver_helper(self, keep_alive: Callable[[], Sequence[str]]) -> Sequence[Outcome]:
        """Ensure that the helper is in place before the first container that it wraps starts.

        `keep_alive` returns the helper's options for an init container that copies it, up to and
        including `--`. Without them, that container ends at once.

        Return the outcomes of containers that the settings do not select, and that start a helper
        that they do not have.
        """
        helper = self._helper
        outcomes = [
            self.settled(where, index, each, "")
            for where, index, each in _containers_of(self._pod)
            if each.starts_helper
            and helper.is_lost_to(where, index, each)
            and (where, index) not in self._judged
        ]
        helper.inject(self._wrapped or self._restored, self._wrapped_inits, keep_alive)
        return outcomes

    def _too_old(self, container: ContainerFacts) -> Outcome | None:
        """Return the outcome for a helper that lacks what the wrapper needs, or None."""
        if self._wrapper.needs is None:
            return None
        feature, reason = self._wrapper.needs
        message = self._helper.missing(feature)
        return Outcome(reason, container=container.name, message=message) if message else None

    def _helper_blocked_outcome(
        self, where: ContainerList, index: int, container: ContainerFacts
    ) -> Outcome | None:
        """Return the outcome for a container that the helper cannot wrap, or None if it can."""
        reason, message = self._helper.blocked_reason, ""
        if file_capabilities.may_be_lost(self._pod, container):
            reason = Reason.FILE_CAPABILITIES
        elif reason is not None:
            pass
        elif container.mounts_over_helper and not (
            container.starts_helper or container.mounts_helper
        ):
            reason = Reason.NAME_CONFLICT
        elif where == "initContainers" and self._helper.comes_too_late(index):
            reason, message = Reason.NOT_APPLICABLE, _TOO_LATE
        if reason is None:
            return self._too_old(container)
        return Outcome(reason, container=container.name, message=message)


_TOO_LATE = (
    f"the container starts before {HELPER}, which has to stay where it is: another webhook has put "
    "a program of its own in front of it"
)
_NOT_DELIVERED = (
    f"the container's wrapper starts the helper, but the init container or the mount {HELPER} is "
    "missing, and podsettle cannot add it again: the container cannot start"
)


def _wrapped_outcome(container: ContainerFacts, message: str) -> Outcome:
    image = container.entrypoint_image
    if image is not None:
        message += f", around what its image {image.reference} starts"
    return _applied_outcome(container, message)


def _applied_outcome(container: ContainerFacts, message: str) -> Outcome:
    return Outcome(Reason.APPLIED, container=container.name, changed=True, message=message)


def selected_containers(
    pod: PodFacts, init_containers: tuple[str, ...], containers: tuple[str, ...]
) -> Iterator[tuple[ContainerList, int, ContainerFacts]]:
    """Yield each container that globs select, with its list and its index in the list.

    podsettle's own containers are left out.
    """
    wants = {
        "initContainers": compile_globs(init_containers),
        "containers": compile_globs(containers),
    }
    return (found for found in _containers_of(pod) if wants[found[0]](found[2].name))


def _containers_of(pod: PodFacts) -> Iterator[tuple[ContainerList, int, ContainerFacts]]:
    """Yield each container but podsettle's own, with its list and its index in the list."""
    for index, container in enumerate(pod.init_containers or ()):
        if container.name not in OWN_CONTAINERS:
            yield "initContainers", index, container
    for index, container in enumerate(pod.containers or ()):
        yield "containers", index, container


def exclusion_reason(where: ContainerList, container: ContainerFacts) -> Reason | None:
    """Return why no remedy wraps a container, or None if it may be wrapped."""
    if is_sidecar(container, is_regular=where == "containers"):
        return Reason.NATIVE_SIDECAR
    if where == "initContainers" and is_mesh_init_container(container):
        return Reason.MESH_INIT_CONTAINER
    return None


def is_systemd(command: Sequence[str]) -> bool:
    """Return whether a command starts systemd, or BusyBox as `init`.

    By the first string alone, CRI-O decides to mount `/run` and a writable cgroup, without which
    systemd does not start (`WillRunSystemd` in cri-o `internal/factory/container/container.go`).
    """
    return bool(command) and f"/{command[0]}".endswith(("/sbin/init", "/systemd"))


def _starts_wrapper(strings: Sequence[str]) -> bool:
    """Return whether strings begin with a wrapper of podsettle, of any version."""
    # Almost no command has the third test.
    return bool(strings) and (
        strings[0] == HELPER_PATH
        or (len(strings) > 3 and strings[3] == SCRIPT_NAME and shell_wrapper.is_wrapped(strings))
    )


def layers(strings: Sequence[str]) -> Sequence[list[str]]:
    """Return the wrappers of podsettle, of any version, in strings that begin with one.

    `strings` are a command, or `ContainerFacts.inner_wrapper`. The outermost one comes first. At
    most MAX_LAYERS are read, because a client may write any number. A helper without a command,
    which has no `--`, is the last one.
    """
    if not _starts_wrapper(strings):
        return ()
    return [layer for _, layer in _layers_at(strings)]


def _behind_layers(strings: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield what each wrapper of podsettle starts in strings that `layers` takes.

    With openFiles, that is process 1 in place of the wrapper of an earlier call.
    """
    if _starts_wrapper(strings):
        for start, layer in _layers_at(strings):
            yield strings[start + len(layer) :]


def _layers_at(strings: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the wrappers in strings with the index of each. Programs of others may be between."""
    read = list(strings[:MAX_WRAPPER_STRINGS])
    start, count = 0, 0
    while count < MAX_LAYERS and start < len(read):
        if read[start] == HELPER_PATH:
            options = read[start : start + _MAX_OPTION_STRINGS + 2]
            if "--" not in options:
                yield start, options
                return
            length = options.index("--") + 1
        else:
            options = read[start : start + shell_wrapper.WRAPPER_LENGTH]
            if not shell_wrapper.is_wrapped(options):
                next_index = wrapper_index(read, start + 1)
                if next_index is None:
                    return
                start = next_index
                continue
            length = len(options)
        yield start, options[:length]
        start += length
        count += 1


def helper_options(layer: Sequence[str]) -> dict[str, str]:
    """Return the options of a helper's layer, as the helper reads them. The last of a name counts.

    `layer` starts with the helper's path. What follows the first `--` is not read.
    """
    options: dict[str, str] = {}
    strings = iter(layer[1 : _MAX_OPTION_STRINGS + 2])
    for string in strings:
        if string == "--":
            break
        name, equals, value = string.partition("=")
        options[name] = value if equals else next(strings, "")
    return options


def has_settings_of(
    wrapper: CommandWrapper, layer: Sequence[str], read_script: Callable[[Sequence[str]], object]
) -> bool:
    """Return whether a layer has the settings of a wrapper.

    `read_script` returns the settings in a layer of a shell.
    """
    if layer[0] == HELPER_PATH:
        return helper_options(wrapper.helper_command).items() <= helper_options(layer).items()
    return read_script(layer) == read_script(wrapper.in_shell[layer[0]])


def unwrap_container(container: dict[str, Any]) -> None:
    """Remove the wrappers of podsettle, and the mount of the helper, from a container as JSON.

    Another webhook may have moved a wrapper, or joined it into a text.
    """
    lists = {
        key: each if isinstance(each := container.get(key), list) else []
        for key in ("command", "args", "volumeMounts")
    }
    command, args, mounts = lists.values()
    others = [
        each
        for each in mounts
        if not (isinstance(each, dict) and each.get("mountPath") == HELPER_MOUNT)
    ]
    strings = [*command, *args]
    if all(isinstance(each, str) for each in strings):
        places = _wrapper_places(strings)
        # Without a wrapper of its own, one may be in a text: else a text may be about another one.
        kept = (
            [each for index, each in enumerate(strings) if index not in places]
            if places
            else without_wrappers(strings, mounts_helper=others != mounts)
        )
        own = sum(place < len(command) for place in places)
        end = max(len(command) - own, int(bool(command)))
        lists |= {"command": kept[:end], "args": kept[end:]}
    lists["volumeMounts"] = others
    for key, found in lists.items():
        if isinstance(container.get(key), list) and container[key]:
            container[key] = found
    if mounts and not others:
        del container["volumeMounts"]


def _wrapper_places(strings: list[str]) -> set[int]:
    """Return the indices of the strings that belong to wrappers of podsettle."""
    if HELPER_PATH not in strings and SCRIPT_NAME not in strings:
        return set()
    return {
        start + index
        for start, layer in _layers_at(strings)
        if layer[0] != HELPER_PATH or layer[-1] == "--"
        for index in range(len(layer))
    }
