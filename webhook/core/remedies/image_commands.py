"""Which command a container without `command` starts: that of its image."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from webhook.core.cluster.nodes import architectures
from webhook.core.images import (
    MAX_REFERENCE_CHARACTERS,
    ImageQuery,
    LookupRules,
    Unavailable,
    escape_dollars,
)
from webhook.core.patch.builder import PodPatch
from webhook.core.pod import Container, Pod
from webhook.core.pull_secrets import LONGEST_NAME, MOST_PULL_SECRETS
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies.base import Context


class ImageCommand(NamedTuple):
    """What a container without `command` starts, and the arguments that only its image knows."""

    command: list[str]
    args: list[str] = []  # noqa: RUF012 (nobody changes it)


class ImageCommands:
    """What the pod's containers start where the pod does not say."""

    def __init__(self, pod: Pod, context: Context, patch: PodPatch) -> None:
        self._pod = pod
        self._context = context
        self._patch = patch

    def command_of(self, container: Container) -> ImageCommand | Outcome:
        """What a container without `command` starts, or why that is not known."""
        rules = self._context.image_rules
        if rules is None:
            return Outcome(Reason.NO_COMMAND, container=container.name)
        if not container.image:
            return _unavailable(container, "the container names no image")
        found = self._context.images.find(self._query(container.image, rules))
        if isinstance(found, Unavailable):
            return _unavailable(container, found.why)
        entrypoint, cmd = ([escape_dollars(text) for text in texts] for texts in found)
        if container.has_args:
            return ImageCommand(entrypoint)
        if not entrypoint and not cmd:
            return _unavailable(container, "the image has neither an Entrypoint nor a Cmd")
        if not entrypoint:
            # Cmd is the command then, perhaps a shell.
            return ImageCommand(cmd)
        return ImageCommand(entrypoint, cmd)

    def _query(self, image: str, rules: LookupRules) -> ImageQuery:
        """Bounded, whatever the pod says: a query is kept, as the key of what it brought.

        What is cut is still too long to be one, and one secret more tells of all further.
        """
        spec = self._pod.spec
        secrets = (spec.image_pull_secrets or ())[: MOST_PULL_SECRETS + 1]
        return ImageQuery(
            image[: MAX_REFERENCE_CHARACTERS + 1],
            rules,
            frozenset(each[: LONGEST_NAME + 1] for each in self._architectures),
            self._context.namespace.name,
            tuple(secret.name[: LONGEST_NAME + 1] for secret in secrets),
            (spec.service_account_name or "default")[: LONGEST_NAME + 1],
        )

    @cached_property
    def _architectures(self) -> frozenset[str]:
        placed = self._context.spec_with_runtime_class(self._pod, self._patch)
        return architectures(self._context.view.nodes, placed)


def _unavailable(container: Container, why: str) -> Outcome:
    return Outcome(Reason.IMAGE_CONFIG_UNAVAILABLE, container=container.name, message=why)
