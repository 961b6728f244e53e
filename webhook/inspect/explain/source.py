"""The object of a target, from the API server or from files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from webhook.cluster.client import ApiServer
from webhook.cluster.manifest_loader import manifest_files
from webhook.cluster.reader import ClusterReader
from webhook.cluster.unread import NotAllowedError
from webhook.core.preview.list_items import find_objects
from webhook.core.preview.yaml_documents import iterate_documents
from webhook.inspect.cluster_flags import NO_FLAGS, ClusterFlags
from webhook.inspect.explain.found import NotFoundError
from webhook.inspect.explain.target import ObjectTarget

Json: TypeAlias = Mapping[str, Any]


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
        command = flags.add_to(error.right.command)
        raise NotFoundError(f"{title}: {error}; to check: {command}") from None
    if found is None:
        raise NotFoundError(f"{title}: it does not exist")
    return found


def find_object(paths: Collection[Path], target: ObjectTarget, namespace: str | None) -> Json:
    """Return the object of a target in files.

    Without `namespace`, the object is found in any namespace. Raises NotFoundError, OSError,
    ManifestsError and DocumentError.
    """
    found = [
        each
        for each in _objects(paths)
        if each.get("kind") == target.kind.kind
        and _metadata(each).get("name") == target.name
        and namespace in (None, namespace_of(each, namespace))
    ]
    if not found:
        where = f" in namespace {namespace}" if namespace else ""
        read = ", ".join(map(str, paths))
        nested = any(map(_has_subdirectory, paths))
        hint = "; files in subdirectories are not read" if nested else ""
        raise NotFoundError(f"{target}{where}: it is not in the manifests: {read}{hint}")
    if len({namespace_of(each) for each in found}) > 1:
        raise NotFoundError(f"{target}: it is in several namespaces; choose one with -n")
    return found[0]


def namespace_of(document: Json, default: str | None = None) -> str | None:
    """Return the namespace of an object, or `default` if it names none."""
    namespace = _metadata(document).get("namespace")
    return namespace if isinstance(namespace, str) and namespace else default


def _has_subdirectory(path: Path) -> bool:
    return path.is_dir() and any(each.is_dir() for each in path.iterdir())


def _objects(paths: Iterable[Path]) -> Iterator[Json]:
    for path in paths:
        for file in manifest_files(path) if path.is_dir() else [path]:
            for document in iterate_documents(file.read_bytes(), str(file)):
                for each in find_objects(document.value):
                    if isinstance(each.value, Mapping):
                        yield each.value


def _metadata(document: Json) -> Json:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}
