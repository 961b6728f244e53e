"""The loader of manifests: SettlePolicy, Namespace, RuntimeClass and Node documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from webhook.cluster.decode import read_namespace, read_node, read_runtime_class
from webhook.core.constants import GROUP, KIND
from webhook.core.json_path import json_path
from webhook.core.policy.model import parse_policy
from webhook.core.policy.validation_errors import InvalidPolicyError, ManifestProblem
from webhook.core.preview.document import Document, DocumentError
from webhook.core.preview.yaml_documents import iterate_documents

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
        # A broken symbolic link that is named is an unreadable file, as in a directory.
        if path.is_dir() or not (path.exists() or path.is_symlink()):
            files |= dict.fromkeys(manifest_files(path))
        else:
            files[path] = None
    return list(files)


def read_manifest(path: Path) -> tuple[list[ManifestObject], tuple[ManifestProblem, ...]]:
    """Return the objects and the problems of a file. Ignore objects of other kinds."""
    try:
        return parse_manifest(path.read_bytes(), str(path))
    except OSError as error:
        return [], (ManifestProblem(str(path), 0, error.strerror or str(error)),)


def parse_manifest(
    text: bytes, source: str
) -> tuple[list[ManifestObject], tuple[ManifestProblem, ...]]:
    """Return the objects and the problems of a text. `source` names the text in problems."""
    objects: list[ManifestObject] = []
    problems: list[ManifestProblem] = []
    try:
        for document in iterate_documents(text, source):
            for path, value in _items(document.value):
                try:
                    loaded = _load_object(document, path, value)
                except _ProblemsError as error:
                    problems.extend(error.problems)
                else:
                    objects.extend([loaded] if loaded else [])
    except DocumentError as error:
        # The text may be cut off, so none of its objects is used.
        return [], (ManifestProblem(error.source, error.line, error.message),)
    return objects, tuple(problems)


def duplicates(objects: Iterable[ManifestObject]) -> tuple[ManifestProblem, ...]:
    """Return a problem for each object that has the kind and name of an earlier object."""
    first_objects: dict[tuple[str, str], ManifestObject] = {}
    problems = []
    for item in objects:
        first = first_objects.setdefault((item.kind, item.name), item)
        if first is not item:
            position = f"{first.source}:{first.line}"
            message = f"a second {item.kind} named {item.name!r}; the one at {position} counts"
            problems.append(ManifestProblem(item.source, item.line, message))
    return tuple(problems)


class _ProblemsError(Exception):
    """An object that cannot be used, with its problems."""

    def __init__(self, *problems: ManifestProblem) -> None:
        super().__init__()
        self.problems = problems


# The kinds that podsettle reads in addition to SettlePolicy, with the function that converts each.
READERS: dict[str, Callable[[object], Any]] = {
    "Namespace": read_namespace,
    "Node": read_node,
    "RuntimeClass": read_runtime_class,
}

# The API group of each of these kinds, except kinds of the core group, whose name is empty.
_API_GROUPS = {"RuntimeClass": "node.k8s.io"}


def _items(value: Any) -> list[tuple[tuple[str | int, ...], Any]]:
    """Return the path and the value of each item of a List, or of the value if it is no List."""
    if isinstance(value, dict) and value.get("kind") == "List":
        items = value.get("items")
        if isinstance(items, list):
            return [(("items", index), item) for index, item in enumerate(items)]
        return [(("items",), items)] if items is not None else []
    return [((), value)]


def _load_object(
    document: Document, path: tuple[str | int, ...], value: Any
) -> ManifestObject | None:
    """Convert the object at a path. Return None for other kinds. Raises _ProblemsError."""
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise _ProblemsError(_problem_at(document, path, "is not a Kubernetes object: no kind"))
    kind = value["kind"]
    if kind != KIND and KIND.casefold() in kind.casefold():
        message = f"is {kind!r}; did you mean {KIND}?"
        raise _ProblemsError(_problem_at(document, (*path, "kind"), message))
    if kind == KIND:
        try:
            policy = parse_policy(value)
        except InvalidPolicyError as error:
            raise _ProblemsError(
                *(_problem_at(document, (*path, *p.path), p.message) for p in error.errors)
            ) from None
        return ManifestObject(
            kind, policy.metadata.name, policy, document.source, document.line(path)
        )
    if str(value.get("apiVersion", "")).startswith(f"{GROUP}/"):
        message = f"is {kind!r}; the only kind of {GROUP} is {KIND}"
        raise _ProblemsError(_problem_at(document, (*path, "kind"), message))
    group = str(value.get("apiVersion", "")).rpartition("/")[0]
    if kind not in READERS or group not in ("", _API_GROUPS.get(kind, "")):
        return None
    try:
        model = READERS[kind](value)
    except msgspec.ValidationError as error:
        raise _ProblemsError(_problem_at(document, path, f"{kind}: {error}")) from None
    return ManifestObject(kind, model.name, model, document.source, document.line(path))


def _problem_at(document: Document, path: tuple[str | int, ...], message: str) -> ManifestProblem:
    return ManifestProblem(document.source, document.line(path), message, json_path(path))
