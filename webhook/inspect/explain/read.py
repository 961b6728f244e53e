"""The object of a target, in an API server or in manifests, and the pods that belong to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.manifests import Manifests
from webhook.cluster.reader import ClusterReader
from webhook.cluster.unread import NotAllowedError
from webhook.core.pod import DECODE_ERRORS
from webhook.core.types import Json
from webhook.inspect.explain.target import CRON_JOB, JOB, POD, ObjectTarget
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.objects import LivePod
from webhook.inspect.paged import PagedReader
from webhook.inspect.scan.dump import DumpReader, ObjectReader
from webhook.inspect.scan.resources import PODS, NamedObject
from webhook.inspect.scan.templates import DumpTemplates, LiveTemplates, TemplateReader
from webhook.inspect.scan.workload import workload_of

_MAX_NAMESPACES = 5
"""The number of namespaces that a message names, because people read it."""


class NotFoundError(Exception):
    """Raised if the target does not exist or cannot be read. The text says why."""


class Source(NamedTuple):
    """An API server, or manifests."""

    origin: ApiServer | Manifests
    reader: ObjectReader
    templates: TemplateReader

    @classmethod
    def of(cls, origin: ApiServer | Manifests) -> Source:
        """Return the source for an API server, or for manifests."""
        if isinstance(origin, Manifests):
            return cls(origin, DumpReader(origin), DumpTemplates(origin))
        return cls(origin, PagedReader(origin), LiveTemplates(origin))

    async def find(
        self, target: ObjectTarget, namespace: str | None, cluster: KnownCluster
    ) -> tuple[Json, str]:
        """Return the object of a target, and its namespace. `namespace` None stands for any.

        Raises NotFoundError, and of an API server ApiError and Unreachable.
        """
        where, absent = f" in namespace {namespace}" if namespace else "", "it does not exist"
        if isinstance(self.origin, Manifests):
            hint = "; files in subdirectories are not read" * self.origin.have_subdirectories
            absent = f"it is not in the manifests: {self.origin.title}{hint}"
            found = list(_in_manifests(self.origin, target))
        else:
            where, reader = where or " in all namespaces", ClusterReader(self.origin)
            try:
                if namespace:
                    found = list(filter(None, [await reader.get(target.right(namespace))]))
                else:
                    query = urlencode({"fieldSelector": f"metadata.name={target.name}"})
                    found = await reader.list(target.right(None), query)
            except NotAllowedError as error:
                command = cluster.flags.command(error.right.command)
                raise NotFoundError(f"{target}{where}: {error}; to check: {command}") from None
        in_namespaces: dict[str, Json] = {}
        for each in found:
            own = namespace or cluster.namespace
            if not namespace or isinstance(self.origin, Manifests):
                own = each["metadata"].get("namespace") or own
            if namespace in (None, own):
                in_namespaces.setdefault(own, each)
        if not in_namespaces:
            raise NotFoundError(f"{target}{where}: {absent}")
        if len(in_namespaces) > 1:
            names = ", ".join(list(in_namespaces)[:_MAX_NAMESPACES])
            more = " and more" * (len(in_namespaces) > _MAX_NAMESPACES)
            raise NotFoundError(f"{target}: it is in {names}{more}; choose one with -n")
        ((chosen, document),) = in_namespaces.items()
        # A list may omit the kind of its objects.
        kind = {"apiVersion": target.kind.api_version, "kind": target.kind.kind}
        return {**kind, **document}, chosen

    async def pods_of(
        self, target: ObjectTarget, document: Json, namespace: str
    ) -> AsyncIterator[LivePod]:
        """Yield a pod, or the pods of a workload. Raises one of DECODE_ERRORS for a malformed pod.

        The CronJob controller names a Job after the CronJob and the scheduled time (`getJobName` in
        kubernetes `pkg/controller/cronjob/utils.go`).
        """
        if target.kind is POD:
            yield msgspec.json.decode(msgspec.json.encode(document), type=LivePod)
            return
        async for each in self.reader.objects(PODS, namespace):
            kind, name, *_ = workload_of(each.metadata)
            before, _, number = name.rpartition("-")
            if target.kind is CRON_JOB and kind == JOB.kind and number.isdecimal():
                kind, name = CRON_JOB.kind, before
            if (kind, name) == (target.kind.kind, target.name):
                yield each


def _in_manifests(manifests: Manifests, target: ObjectTarget) -> Iterator[Json]:
    for encoded in manifests.objects.get(target.kind.kind, ()):
        try:
            if msgspec.json.decode(encoded, type=NamedObject).metadata.name == target.name:
                yield msgspec.json.decode(encoded)
        except DECODE_ERRORS:
            continue  # It has no valid metadata.
