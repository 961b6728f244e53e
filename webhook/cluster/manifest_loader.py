"""The loader of manifests: SettlePolicy, Namespace, RuntimeClass and Node documents."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from webhook.cluster.decode import read_namespace, read_node, read_runtime_class
from webhook.core.cluster.nodes import Nodes
from webhook.core.constants import GROUP, KIND
from webhook.core.pod import DECODE_ERRORS
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import parse_policy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.validation_errors import InvalidPolicyError, ManifestProblem
from webhook.core.preview.document import DocumentError
from webhook.core.preview.text_objects import TextObject, iterate_objects

SUFFIXES = (".yaml", ".yml", ".json")


class ManifestsError(Exception):
    """A directory that cannot be read, or a path that does not exist."""


class ManifestObject(NamedTuple):
    """An object of a manifest, as podsettle's model, with the file and line where it begins."""

    kind: str
    name: str
    model: Any
    source: str
    line: int


def manifest_files(directory: Path) -> list[Path]:
    """Return the manifests in a directory, sorted by name. Subdirectories are ignored.

    Raises ManifestsError.
    """
    try:
        return sorted(
            path
            for path in directory.iterdir()
            # A broken symbolic link is included as an unreadable file, so that the objects that it
            # contained before stay in force.
            if path.suffix in SUFFIXES and (path.is_file() or path.is_symlink())
        )
    except OSError as error:
        raise ManifestsError(f"{directory}: {error.strerror}") from None


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Return the files at some paths, in their order and each once.

    A directory stands for its manifests. A file that is named counts whatever its suffix is. Raises
    ManifestsError for a path that does not exist.
    """
    files: dict[Path, None] = {}
    for path in paths:
        # A broken symbolic link that is named is an unreadable file, as in a directory. The methods
        # of Path raise an error for a name that is too long or in a directory without permission.
        if os.path.isdir(path) or not os.path.lexists(path):
            files |= dict.fromkeys(manifest_files(path))
        else:
            files[path] = None
    return list(files)


def read_manifest(path: Path) -> tuple[list[ManifestObject], tuple[ManifestProblem, ...]]:
    """Return the objects and the problems of a file. Ignore objects of other kinds."""
    try:
        return load_objects(iterate_objects(path.read_bytes(), str(path)))
    except OSError as error:
        return [], (ManifestProblem(str(path), 0, error.strerror or str(error)),)
    except DocumentError as error:
        # The text may be cut off, so none of its objects is used.
        return [], (ManifestProblem(error.source, error.line, error.message),)


def load_objects(
    items: Iterable[TextObject],
) -> tuple[list[ManifestObject], tuple[ManifestProblem, ...]]:
    """Return the objects and the problems of the items of a text. Raises DocumentError."""
    found = [each for item in items for each in _load_object(item)]
    problems = (each for each in found if isinstance(each, ManifestProblem))
    return [each for each in found if isinstance(each, ManifestObject)], tuple(problems)


def view_of(objects: Iterable[ManifestObject]) -> Snapshot:
    """Return the cluster that manifests describe. Of duplicate objects, the first counts."""
    models: dict[str, dict[str, Any]] = {kind: {} for kind in (KIND, *_READERS)}
    for item in objects:
        models[item.kind].setdefault(item.name, item.model)
    return Snapshot(
        policies=PolicySet(models[KIND].values()),
        namespaces=models["Namespace"],
        runtime_classes=models["RuntimeClass"],
        nodes=Nodes(models["Node"].values()),
    )


def duplicates(objects: Iterable[ManifestObject]) -> tuple[ManifestProblem, ...]:
    """Return a problem for each object that has the kind and name of an earlier object.

    An equal second object is a problem only if it is a policy: dumps of several namespaces have the
    same nodes.
    """
    first_objects: dict[tuple[str, str], ManifestObject] = {}
    problems = []
    for item in objects:
        first = first_objects.setdefault((item.kind, item.name), item)
        if first is not item and (item.kind == KIND or first.model != item.model):
            position = f"{first.source}:{first.line}"
            message = f"a second {item.kind} named {item.name!r}; the one at {position} counts"
            problems.append(ManifestProblem(item.source, item.line, message))
    return tuple(problems)


# The kinds that podsettle reads in addition to SettlePolicy, with the API group of each, which is
# empty for the core group, and the function that converts it.
_READERS: dict[str, tuple[str, Callable[[object], Any]]] = {
    "Namespace": ("", read_namespace),
    "Node": ("", read_node),
    "RuntimeClass": ("node.k8s.io", read_runtime_class),
}


def _load_object(item: TextObject) -> Iterator[ManifestObject | ManifestProblem]:
    """Yield the model of an object or its problems. Yield nothing for other kinds.

    Raises DocumentError.
    """
    kind, group = item.kind, item.api_version.rpartition("/")[0]
    if not kind:
        yield item.problem((), "is not a Kubernetes object: no kind")
    elif kind == "List":
        yield item.problem(("items",), "is no list")
    elif kind == KIND:
        try:
            policy = parse_policy(item.parse().value)
        except InvalidPolicyError as error:
            yield from (item.problem(each.path, each.message) for each in error.errors)
        else:
            yield ManifestObject(kind, policy.metadata.name, policy, item.source, item.line())
    elif KIND.casefold() in kind.casefold():
        yield item.problem(("kind",), f"is {kind!r}; did you mean {KIND}?")
    elif item.api_version.startswith(f"{GROUP}/"):
        yield item.problem(("kind",), f"is {kind!r}; the only kind of {GROUP} is {KIND}")
    elif kind in _READERS and group in ("", _READERS[kind][0]):
        try:
            model = _READERS[kind][1](item.value)
        except DECODE_ERRORS as error:
            yield item.problem((), f"{kind}: {error}")
        else:
            yield ManifestObject(kind, model.name, model, item.source, item.line())
