"""The commands of containers without `command`, which come from their images."""

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
from webhook.core.pull_secrets import MAX_OBJECT_NAME_CHARACTERS, MAX_PULL_SECRETS
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies.base import Context


class ImageCommand(NamedTuple):
    """The command that a container without `command` starts, and its arguments from the image."""

    command: list[str]
    args: list[str] = []  # noqa: RUF012 (never changed)


class ImageCommands:
    """The commands of a pod's containers that have no `command`."""

    def __init__(self, pod: Pod, context: Context, patch: PodPatch) -> None:
        self._pod = pod
        self._context = context
        self._patch = patch

    def command_of(self, container: Container) -> ImageCommand | Outcome:
        """Return the command that a container starts, or the outcome that says why it is unknown.

        The container has no `command` of its own.
        """
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
            # Without an Entrypoint the Cmd is the command, perhaps a shell.
            return ImageCommand(cmd)
        return ImageCommand(entrypoint, cmd)

    def _query(self, image: str, rules: LookupRules) -> ImageQuery:
        """Return the query for an image, with every part bounded in length.

        A query is the cache key of its result, and the API server has not validated the pod yet.
        Each part is cut one character, or one secret, above its limit. So the look-up still sees
        that the limit is exceeded.
        """
        spec = self._pod.spec
        secrets = (spec.image_pull_secrets or ())[: MAX_PULL_SECRETS + 1]
        return ImageQuery(
            image[: MAX_REFERENCE_CHARACTERS + 1],
            rules,
            frozenset(each[: MAX_OBJECT_NAME_CHARACTERS + 1] for each in self._architectures),
            self._context.namespace.name,
            tuple(secret.name[: MAX_OBJECT_NAME_CHARACTERS + 1] for secret in secrets),
            (spec.service_account_name or "default")[: MAX_OBJECT_NAME_CHARACTERS + 1],
        )

    @cached_property
    def _architectures(self) -> frozenset[str]:
        placed = self._context.spec_with_runtime_class(self._pod, self._patch)
        return architectures(self._context.view.nodes, placed)


def _unavailable(container: Container, why: str) -> Outcome:
    return Outcome(Reason.IMAGE_CONFIG_UNAVAILABLE, container=container.name, message=why)
