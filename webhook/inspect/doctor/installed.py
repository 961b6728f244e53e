"""What the checks of one round read: the installation, its pods, and the view of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import Unreachable
from webhook.cluster.reader import ClusterReader
from webhook.cluster.rights import Right
from webhook.cluster.unread import NotAllowedError
from webhook.cluster.view_reader import Kind, ReadView, read_view
from webhook.core.images import ImageResolver
from webhook.core.types import Json
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.installation import CONFIGURATIONS_RIGHT, Installation

NewImageResolver: TypeAlias = Callable[[ApiServer], ImageResolver]
"""Returns a resolver that reads pull secrets of this cluster. The caller closes it."""


@dataclass
class Installed:
    """An installation and what was read of it. Use a new one for each round of checks."""

    server: ApiServer
    installation: Installation
    new_image_resolver: NewImageResolver
    flags: ClusterFlags
    """The flags of printed commands."""
    chosen_namespace: str | None
    """The namespace for the dry run and for the pull of the helper. None: a covered one."""
    faults: set[str] = field(default_factory=set)
    """The names of the checks that have found a fault so far."""
    _view: ReadView | None = None

    def __post_init__(self) -> None:
        self.reader = ClusterReader(self.server)

    async def view(self, *kinds: Kind) -> ReadView:
        """Return the policies, namespaces, RuntimeClasses and nodes of the cluster.

        Raises NotAllowedError or Unreachable if one of `kinds` could not be read.
        """
        if self._view is None:
            chosen = (self.chosen_namespace,) if self.chosen_namespace else ()
            self._view = await read_view(self.server, namespaces=chosen)
        for unread in self._view.unread:
            if unread.resource in kinds:
                if unread.is_denied:
                    raise NotAllowedError(unread.right)
                raise Unreachable(f"the API server has no {unread.resource}")
        return self._view

    async def configuration(self) -> Json:
        """Return the MutatingWebhookConfiguration. Empty if it does not exist."""
        right = CONFIGURATIONS_RIGHT._replace(verb="get", name=self.installation.configuration)
        return await self.reader.get(right) or {}

    async def pods(self) -> list[Json]:
        """Return the pods of the Deployment, except those that end or have ended."""
        selected = self.installation.deployment["spec"]["selector"].get("matchLabels") or {}
        labels = ",".join(f"{key}%3D{value}" for key, value in selected.items())
        right = Right("list", "", "pods", self.installation.namespace)
        return [
            pod
            for pod in await self.reader.list(right, f"labelSelector={labels}")
            if "deletionTimestamp" not in pod["metadata"]
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]


def is_ready(pod: Json) -> bool:
    """Return whether the kubelet says that a pod is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
