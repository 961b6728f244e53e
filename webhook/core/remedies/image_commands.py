"""The commands of containers without `command`, which come from their images."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import NamedTuple

from webhook.core.decision_input import ContainerFacts, EntrypointImage, PodFacts
from webhook.core.image_reference import is_placeholder, is_short_name
from webhook.core.images import (
    MAX_REFERENCE_CHARACTERS,
    ImageQuery,
    LookupRules,
    Unavailable,
    escape_dollars,
)
from webhook.core.patch.builder import PodPatch
from webhook.core.pull_secrets import MAX_OBJECT_NAME_CHARACTERS
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies.base import Context

IMAGE_REASONS = frozenset(
    {Reason.NO_COMMAND, Reason.IMAGE_CONFIG_UNAVAILABLE, Reason.SHORT_IMAGE_NAME}
)
"""The reasons for which the command of an image is not known."""


_MAX_COPIED_CHARACTERS = 128 * 1024
"""The maximum number of characters that are copied from images into the containers of a pod. A pod
of 20 KiB can have 490 containers of an image whose command has 8,192."""


class ImageCommand(NamedTuple):
    """The command that a container without `command` starts, and its arguments from the image."""

    command: list[str]
    args: list[str] = []  # noqa: RUF012 (never changed)


class ImageCommands:
    """The commands of a pod's containers that have no `command`."""

    def __init__(self, pod: PodFacts, context: Context, patch: PodPatch) -> None:
        self._pod = pod
        self._context = context
        self._patch = patch
        self._copied_characters = 0

    def command_of(
        self, container: ContainerFacts, image: EntrypointImage
    ) -> ImageCommand | Outcome:
        """Return the command that a container without `command` starts.

        If the command is unknown, return the outcome that gives the reason.
        """
        rules = self._context.image_rules
        if rules is None:
            return Outcome(Reason.NO_COMMAND, container=container.name)
        if is_placeholder(image.reference) or image.is_on_node:
            why = "the image is a placeholder, which is replaced later"
            if image.is_on_node:
                why = "imagePullPolicy is Never, and the image on the node may be another one"
            return Outcome(Reason.NO_COMMAND, container=container.name, message=why)
        if not image.reference:
            return _unavailable_outcome(container, "the container names no image")
        if is_short_name(image.reference) and not self._short_names_are_on_docker_hub:
            return Outcome(Reason.SHORT_IMAGE_NAME, container=container.name)
        config = self._context.images.find(self._image_query(image.reference, rules))
        if isinstance(config, Unavailable):
            return _unavailable_outcome(container, config.why)
        self._copied_characters += sum(1 + len(text) for text in chain(*config))
        if self._copied_characters > _MAX_COPIED_CHARACTERS:
            why = f"the pod's images have commands of over {_MAX_COPIED_CHARACTERS} characters"
            return _unavailable_outcome(container, why)
        entrypoint, cmd = ([escape_dollars(text) for text in texts] for texts in config)
        if image.has_args:
            # The container's `args` replace the image's Cmd.
            return ImageCommand(entrypoint)
        if not entrypoint and not cmd:
            return _unavailable_outcome(container, "the image has neither an Entrypoint nor a Cmd")
        if not entrypoint:
            # Without an Entrypoint the Cmd is the command, perhaps a shell.
            return ImageCommand(cmd)
        return ImageCommand(entrypoint, cmd)

    def _image_query(self, reference: str, rules: LookupRules) -> ImageQuery:
        """Return the query for an image, with every part bounded in length.

        The API server has not validated the pod yet, and a query occupies memory as the cache key
        of its result. Each part is cut to one character more than its limit. So the look-up still
        detects a part that exceeds its limit.
        """
        return ImageQuery(
            reference[: MAX_REFERENCE_CHARACTERS + 1],
            rules,
            frozenset(name[: MAX_OBJECT_NAME_CHARACTERS + 1] for name in self._architectures),
        )

    @cached_property
    def _architectures(self) -> frozenset[str]:
        """The architectures of the nodes on which the pod may run."""
        spec = self._context.spec_with_runtime_class(self._pod, self._patch)
        return self._context.cluster.nodes.architectures(spec)

    @cached_property
    def _short_names_are_on_docker_hub(self) -> bool:
        """Whether the pod's node takes an image whose name has no registry from Docker Hub."""
        spec = self._context.spec_with_runtime_class(self._pod, self._patch)
        return self._context.cluster.nodes.take_short_names_from_docker_hub(spec)


def _unavailable_outcome(container: ContainerFacts, why: str) -> Outcome:
    return Outcome(Reason.IMAGE_CONFIG_UNAVAILABLE, container=container.name, message=why)
