"""The pods that workloads create next, from the templates in an API server or in manifests."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.manifests import Manifests
from webhook.cluster.reader import ClusterReader
from webhook.cluster.rights import Right
from webhook.cluster.unread import NotAllowedError
from webhook.core.constants import OBJECT_NAME
from webhook.core.pod import DECODE_ERRORS, Pod, decode_pod
from webhook.core.preview.pods_in_document import Workload, pods_of
from webhook.inspect.scan.resources import NamedObject
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


class TemplateReader:
    """A source of the pods that workloads create next."""

    async def read(self, workload: WorkloadName) -> object:
        """Return a workload, or None if it cannot be read. Raise nothing."""
        raise NotImplementedError

    async def next_pods(self, workloads: Iterable[WorkloadName]) -> dict[WorkloadName, Pod]:
        """Return the pods of those workloads whose templates can be read. Raise nothing."""
        found: dict[WorkloadName, Pod] = {}
        known = [each for each in dict.fromkeys(workloads) if (each.group, each.kind) in _RESOURCES]
        for workload in known[:_MAX_READ]:
            for each in pods_of(await self.read(workload)):
                with suppress(*DECODE_ERRORS):
                    if isinstance(each, Workload):
                        found[workload] = decode_pod(msgspec.json.encode(each.created_pod))
        return found


class LiveTemplates(TemplateReader):
    """The templates of an API server, as far as the user may read workloads."""

    def __init__(self, server: ApiServer) -> None:
        self._reader = ClusterReader(server)
        self._denied: set[tuple[str, str]] = set()
        """The namespaces and kinds of which one workload was denied. Usually, all of them are."""

    async def read(self, workload: WorkloadName) -> object:
        """Return a workload, or None if it cannot be read. Raise nothing."""
        scope = (workload.namespace, workload.kind)
        if scope not in self._denied and OBJECT_NAME.fullmatch(workload.name):
            resource = _RESOURCES[workload.group, workload.kind]
            right = Right("get", workload.group, resource, workload.namespace, workload.name)
            try:
                return await self._reader.get(right)
            except NotAllowedError:
                self._denied.add(scope)
            except (ApiError, Unreachable):
                pass
        return None


class DumpTemplates(TemplateReader):
    """The templates in manifests."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests

    async def read(self, workload: WorkloadName) -> object:
        """Return a workload, or None if the manifests do not have it. Raise nothing."""
        index = self._places.get((workload.kind, workload.namespace, workload.name))
        if index is None:
            return None
        return msgspec.json.decode(self._manifests.objects[workload.kind][index])

    @cached_property
    def _places(self) -> dict[tuple[str, str, str], int]:
        """The number of each workload among those of its kind."""
        found: dict[tuple[str, str, str], int] = {}
        for _, kind in _RESOURCES:
            for index, encoded in enumerate(self._manifests.objects.get(kind, ())):
                with suppress(*DECODE_ERRORS):
                    metadata = msgspec.json.decode(encoded, type=NamedObject).metadata
                    found[kind, metadata.namespace, metadata.name] = index
        return found
