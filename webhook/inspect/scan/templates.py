"""The pods that workloads of an API server create next, from their templates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.reader import ClusterReader
from webhook.cluster.rights import Right
from webhook.cluster.unread import NotAllowedError
from webhook.core.constants import OBJECT_NAME
from webhook.core.pod import DECODE_ERRORS, Pod, decode_pod
from webhook.core.preview.pods_in_document import Workload, pods_of
from webhook.inspect.scan.workload import WorkloadName

_MAX_READ = 50
"""The maximum number of workloads that are read, because each takes a request."""
_RESOURCES = {
    ("apps", "Deployment"): "deployments",
    ("apps", "StatefulSet"): "statefulsets",
    ("apps", "DaemonSet"): "daemonsets",
    ("apps", "ReplicaSet"): "replicasets",
    ("batch", "Job"): "jobs",
}


class TemplateReader(Protocol):
    """A source of the pods that workloads create next."""

    async def next_pods(self, workloads: Iterable[WorkloadName]) -> dict[WorkloadName, Pod]:
        """Return the pods of those workloads whose templates can be read. Raise nothing."""


class NoTemplates:
    """A source without templates, such as a dump without workloads."""

    async def next_pods(
        self,
        workloads: Iterable[WorkloadName],  # noqa: ARG002
    ) -> dict[WorkloadName, Pod]:
        """Return nothing."""
        return {}


class LiveTemplates:
    """The templates of an API server, as far as the user may read workloads."""

    def __init__(self, server: ApiServer) -> None:
        self._reader = ClusterReader(server)

    async def next_pods(self, workloads: Iterable[WorkloadName]) -> dict[WorkloadName, Pod]:
        """Return the pods of those workloads whose templates can be read. Raise nothing."""
        found: dict[WorkloadName, Pod] = {}
        denied: set[tuple[str, str]] = set()
        wanted = [
            each for each in dict.fromkeys(workloads) if (each.group, each.kind) in _RESOURCES
        ]
        for workload in wanted[:_MAX_READ]:
            # The rights on one kind in one namespace are usually the same for all names.
            scope = (workload.namespace, workload.kind)
            if scope in denied or not OBJECT_NAME.fullmatch(workload.name):
                continue
            resource = _RESOURCES[workload.group, workload.kind]
            right = Right("get", workload.group, resource, workload.namespace, workload.name)
            try:
                document = await self._reader.get(right)
            except NotAllowedError:
                denied.add(scope)
                continue
            except (ApiError, Unreachable):
                continue
            pod = next_pod_of(document) if document is not None else None
            if pod is not None:
                found[workload] = pod
        return found


def next_pod_of(document: object) -> Pod | None:
    """Return the pod that a workload would create. None if the object has no template."""
    for each in pods_of(document):
        if isinstance(each, Workload):
            try:
                return decode_pod(msgspec.json.encode(each.created_pod))
            except DECODE_ERRORS:
                return None
    return None
