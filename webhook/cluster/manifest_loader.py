"""The loader of manifests: SettlePolicy, Namespace, RuntimeClass and Node documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from webhook.cluster.decode import read_namespace, read_node, read_runtime_class
from webhook.core.constants import GROUP, KIND
from webhook.core.policy.errors import InvalidPolicyError, ManifestProblem, json_path
from webhook.core.policy.model import parse_policy
from webhook.core.preview.document import Document, DocumentError
from webhook.core.preview.yaml_documents import iterate_documents

SUFFIXES = (".yaml", ".yml", ".json")


class ManifestsError(Exception):
    """A directory that cannot be read."""


class FoundObject(NamedTuple):
    """An object of a manifest: podsettle's model of it, and where it stands."""

    kind: str
    name: str
    model: Any
    source: str
    line: int


def manifest_files(directory: Path) -> list[Path]:
    """Return the manifests in a directory, sorted by name, without those in subdirectories.

    Raises ManifestsError.
    """
    try:
        return sorted(
            path
            for path in directory.iterdir()
            # A dangling link counts as an unreadable file. Otherwise its objects would be removed.
            if path.suffix in SUFFIXES and (path.is_file() or path.is_symlink())
        )
    except OSError as error:
        raise ManifestsError(f"{directory}: {error.strerror}") from None


def read_manifest(path: Path) -> tuple[list[FoundObject], tuple[ManifestProblem, ...]]:
    """Return a file's objects and problems; objects of other kinds are ignored."""
    try:
        return parse_manifest(path.read_bytes(), str(path))
    except OSError as error:
        return [], (ManifestProblem(str(path), 0, error.strerror or str(error)),)


def parse_manifest(
    text: bytes, source: str
) -> tuple[list[FoundObject], tuple[ManifestProblem, ...]]:
    """Return a text's objects and problems; `source` names the text in the problems."""
    objects: list[FoundObject] = []
    problems: list[ManifestProblem] = []
    try:
        for document in iterate_documents(text, source):
            for path, value in _items(document.value):
                try:
                    found = _load_object(document, path, value)
                except _ProblemsError as error:
                    problems.extend(error.problems)
                else:
                    objects.extend([found] if found else [])
    except DocumentError as error:
        # The text may be cut off, so none of its objects is used.
        return [], (ManifestProblem(error.source, error.line, error.message),)
    return objects, tuple(problems)


def duplicates(objects: Iterable[FoundObject]) -> tuple[ManifestProblem, ...]:
    """Return a problem for each object whose kind and name occurred before; the first counts."""
    first: dict[tuple[str, str], FoundObject] = {}
    problems = []
    for found in objects:
        known = first.setdefault((found.kind, found.name), found)
        if known is not found:
            where = f"{known.source}:{known.line}"
            message = f"a second {found.kind} named {found.name!r}; the one at {where} counts"
            problems.append(ManifestProblem(found.source, found.line, message))
    return tuple(problems)


class _ProblemsError(Exception):
    """A document that is not usable, with its problems."""

    def __init__(self, *problems: ManifestProblem) -> None:
        super().__init__()
        self.problems = problems


# The kinds that podsettle reads besides SettlePolicy.
READERS: dict[str, Callable[[object], Any]] = {
    "Namespace": read_namespace,
    "Node": read_node,
    "RuntimeClass": read_runtime_class,
}

# The other kinds belong to the core group, whose name is empty.
_API_GROUPS = {"RuntimeClass": "node.k8s.io"}


def _items(value: Any) -> list[tuple[tuple[str | int, ...], Any]]:
    """Return the items of a List, else the value itself, each with its path in the document."""
    if isinstance(value, dict) and value.get("kind") == "List":
        items = value.get("items")
        if isinstance(items, list):
            return [(("items", index), item) for index, item in enumerate(items)]
        return [(("items",), items)] if items is not None else []
    return [((), value)]


def _load_object(document: Document, path: tuple[str | int, ...], value: Any) -> FoundObject | None:
    """Return podsettle's model of an object, or None for other kinds. Raises _ProblemsError."""
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
        return FoundObject(kind, policy.metadata.name, policy, document.source, document.line(path))
    if str(value.get("apiVersion", "")).startswith(f"{GROUP}/"):
        message = f"is {kind!r}; the only kind of {GROUP} is {KIND}"
        raise _ProblemsError(_problem_at(document, (*path, "kind"), message))
    group = str(value.get("apiVersion", "")).rpartition("/")[0]
    if kind not in READERS or group not in ("", _API_GROUPS.get(kind, "")):
        return None
    try:
        found = READERS[kind](value)
    except msgspec.ValidationError as error:
        raise _ProblemsError(_problem_at(document, path, f"{kind}: {error}")) from None
    return FoundObject(kind, found.name, found, document.source, document.line(path))


def _problem_at(document: Document, path: tuple[str | int, ...], message: str) -> ManifestProblem:
    return ManifestProblem(document.source, document.line(path), message, json_path(path))
