"""The workload that a pod belongs to, from the pod alone."""

from __future__ import annotations

from typing import NamedTuple

from webhook.core.constants import OBJECT_NAME
from webhook.inspect.cluster_flags import Command, kubectl
from webhook.inspect.objects import LiveMetadata

_TEMPLATE_HASH_LABEL = "pod-template-hash"

_RESTARTABLE = {"Deployment": "deployment", "StatefulSet": "statefulset", "DaemonSet": "daemonset"}
"""The kinds that `kubectl rollout restart` knows, with their names on its command line."""
_GROUP = "apps"
"""The group of these kinds. Other groups have kinds of the same names, such as OpenKruise's."""


class WorkloadName(NamedTuple):
    """The controller of a pod, or the pod itself if it has none."""

    kind: str
    name: str
    namespace: str
    group: str = ""
    """The API group of the kind."""

    @property
    def title(self) -> str:
        """The kind and name for people, such as `Deployment/web`."""
        return f"{self.kind}/{self.name}"

    @property
    def rollout_command(self) -> Command:
        """The command that replaces the workload's pods. Empty if there is none.

        The API server does not check the name of an owner, so it may contain a command of a shell.
        """
        kind = _RESTARTABLE.get(self.kind)
        if kind is None or self.group != _GROUP:
            return ()
        if not all(map(OBJECT_NAME.fullmatch, (self.namespace, self.name))):
            return ()
        return kubectl("-n", self.namespace, "rollout", "restart", f"{kind}/{self.name}")


def workload_of(metadata: LiveMetadata) -> WorkloadName:
    """Return the workload of a pod.

    A ReplicaSet of a Deployment is named after it and the hash of its template, which the pod has
    as a label. So no ReplicaSet has to be read.
    """
    owners = metadata.owner_references or ()
    owner = next((each for each in owners if each.controller), owners[0] if owners else None)
    if owner is None:
        return WorkloadName("Pod", metadata.name, metadata.namespace)
    kind, name = owner.kind, owner.name
    template_hash = (metadata.labels or {}).get(_TEMPLATE_HASH_LABEL)
    if kind == "ReplicaSet" and template_hash and name.endswith(f"-{template_hash}"):
        kind, name = "Deployment", name.removesuffix(f"-{template_hash}")
    return WorkloadName(kind, name, metadata.namespace, owner.api_version.rpartition("/")[0])
