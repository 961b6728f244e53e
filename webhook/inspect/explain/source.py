"""The object of a target, from the API server or from manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlencode

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.manifests import Manifests
from webhook.cluster.reader import ClusterReader
from webhook.cluster.unread import NotAllowedError
from webhook.core.pod import DECODE_ERRORS
from webhook.inspect.cluster_flags import NO_FLAGS, ClusterFlags
from webhook.inspect.explain.found import NotFoundError
from webhook.inspect.explain.target import ObjectTarget

Json: TypeAlias = Mapping[str, Any]

_MAX_NAMESPACES = 5
"""The number of namespaces that a message names, because people read it."""


async def get_object(
    server: ApiServer, target: ObjectTarget, namespace: str, flags: ClusterFlags = NO_FLAGS
) -> Json:
    """Return the object of a target. Raises NotFoundError, ApiError and Unreachable.

    `flags` are those of printed commands.
    """
    title = f"{target} in namespace {namespace}"
    try:
        found = await ClusterReader(server).get(target.right(namespace))
    except NotAllowedError as error:
        command = flags.command(error.right.command)
        raise NotFoundError(f"{title}: {error}; to check: {command}") from None
    if found is None:
        raise NotFoundError(f"{title}: it does not exist")
    return found


async def find_namespace(
    server: ApiServer, target: ObjectTarget, flags: ClusterFlags = NO_FLAGS
) -> str:
    """Return the only namespace with the object of a target.

    `flags` are those of printed commands. Raises NotFoundError, ApiError and Unreachable.
    """
    title = f"{target} in all namespaces"
    selector = urlencode({"fieldSelector": f"metadata.name={target.name}"})
    try:
        found = await ClusterReader(server).list(target.list_right, selector)
    except NotAllowedError as error:
        command = flags.command(error.right.command)
        raise NotFoundError(f"{title}: {error}; to check: {command}") from None
    namespaces = [str(each["metadata"]["namespace"]) for each in found]
    if not namespaces:
        raise NotFoundError(f"{title}: it does not exist")
    if len(namespaces) > 1:
        names = ", ".join(namespaces[:_MAX_NAMESPACES])
        more = " and more" if len(namespaces) > _MAX_NAMESPACES else ""
        raise NotFoundError(f"{target}: it is in {names}{more}; choose one with -n")
    return namespaces[0]


def find_object(manifests: Manifests, target: ObjectTarget, namespace: str | None) -> Json:
    """Return the object of a target in manifests.

    Without `namespace`, the object is found in any namespace. Raises NotFoundError.
    """
    for problem in manifests.unreadable:
        raise NotFoundError(str(problem))
    found = [
        each
        for each in _named(manifests, target)
        if namespace in (None, namespace_of(each, namespace))
    ]
    if not found:
        where = f" in namespace {namespace}" if namespace else ""
        hint = "; files in subdirectories are not read" if manifests.have_subdirectories else ""
        raise NotFoundError(f"{target}{where}: it is not in the manifests: {manifests.title}{hint}")
    if len({namespace_of(each) for each in found}) > 1:
        raise NotFoundError(f"{target}: it is in several namespaces; choose one with -n")
    return found[0]


def namespace_of(document: Json, default: str | None = None) -> str | None:
    """Return the namespace of an object, or `default` if it names none."""
    namespace = _metadata(document).get("namespace")
    return namespace if isinstance(namespace, str) and namespace else default


def _named(manifests: Manifests, target: ObjectTarget) -> Iterator[Json]:
    """Yield the objects that have the kind and name of a target. A list may omit their kind."""
    kind = target.kind
    api_version = f"{kind.group}/v1" if kind.group else "v1"
    for encoded in manifests.objects.get(kind.kind, ()):
        try:
            if _decode_named(encoded).metadata.name == target.name:
                named = {"apiVersion": api_version, "kind": kind.kind}
                yield {**named, **msgspec.json.decode(encoded)}
        except DECODE_ERRORS:
            continue  # Its metadata is none, or its name is no text.


class _NamedMetadata(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct):
    metadata: _NamedMetadata = msgspec.field(default_factory=_NamedMetadata)


_decode_named = msgspec.json.Decoder(_Named).decode


def _metadata(document: Json) -> Json:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}
