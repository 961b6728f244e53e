"""Manifests on disk as the cluster: SettlePolicy, Namespace, RuntimeClass and Node documents.

A directory's files are read again when they change. A file that breaks keeps what it last said in
force; the problem is there to be seen until the file is mended or gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from webhook.cluster.objects import read_namespace, read_node, read_runtime_class
from webhook.cluster.problems import Problem
from webhook.cluster.snapshot import Snapshot
from webhook.cluster.source import Check
from webhook.core.documents import Document, DocumentError, load_documents
from webhook.core.names import GROUP, KIND
from webhook.core.nodes import Nodes
from webhook.core.policies import PolicySet
from webhook.core.policy import InvalidPolicyError, json_path, parse_policy

log = logging.getLogger(__name__)

SUFFIXES = (".yaml", ".yml", ".json")
_SECONDS_BETWEEN_LOOKS = 1.0

_Signature: TypeAlias = tuple[int, int, int]


class ManifestsError(Exception):
    """A directory that cannot be read at all."""


_GROUPS = {"RuntimeClass": "node.k8s.io"}


class FoundObject(NamedTuple):
    """An object that podsettle reads, as its own model of it."""

    kind: str
    name: str
    model: Any


@dataclass(slots=True)
class _File:
    signature: _Signature | None = None
    objects: list[FoundObject] = field(default_factory=list)
    problems: tuple[Problem, ...] = ()


def manifest_files(directory: Path) -> list[Path]:
    """The manifests directly inside a directory, by name. Raises ManifestsError."""
    try:
        return sorted(
            path for path in directory.iterdir() if path.suffix in SUFFIXES and path.is_file()
        )
    except OSError as error:
        raise ManifestsError(f"{directory}: {error.strerror}") from None


def read_manifest(path: Path) -> tuple[list[FoundObject], tuple[Problem, ...]]:
    """What podsettle reads of a file's documents, and everything that is wrong with them.

    Objects of kinds that podsettle does not read are passed by.
    """
    try:
        return read_text(path.read_bytes(), str(path))
    except OSError as error:
        return [], (Problem(str(path), 0, error.strerror or str(error)),)


def read_text(text: bytes, source: str) -> tuple[list[FoundObject], tuple[Problem, ...]]:
    """The same for a text that is already here; `source` names it in the problems."""
    try:
        documents = load_documents(text, source)
    except DocumentError as error:
        return [], (Problem(error.source, error.line, error.message),)
    objects: list[FoundObject] = []
    problems: list[Problem] = []
    for document in documents:
        for path, value in _items(document.value):
            try:
                found = _read_object(document, path, value)
            except _ProblemsError as error:
                problems.extend(error.problems)
            else:
                objects.extend([found] if found else [])
    return objects, tuple(problems)


class _ProblemsError(Exception):
    def __init__(self, *problems: Problem) -> None:
        super().__init__()
        self.problems = problems


_READERS: dict[str, Callable[[object], Any]] = {
    "Namespace": read_namespace,
    "Node": read_node,
    "RuntimeClass": read_runtime_class,
}


def _items(value: Any) -> list[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, dict) and value.get("kind") == "List":
        items = value.get("items")
        if isinstance(items, list):
            return [(("items", index), item) for index, item in enumerate(items)]
        return [(("items",), items)] if items is not None else []
    return [((), value)]


def _read_object(document: Document, path: tuple[str | int, ...], value: Any) -> FoundObject | None:
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise _ProblemsError(_problem(document, path, "is not a Kubernetes object: no kind"))
    kind = value["kind"]
    if kind == KIND:
        try:
            policy = parse_policy(value)
        except InvalidPolicyError as error:
            raise _ProblemsError(
                *(_problem(document, (*path, *p.path), p.message) for p in error.problems)
            ) from None
        return FoundObject(kind, policy.metadata.name, policy)
    if str(value.get("apiVersion", "")).startswith(f"{GROUP}/"):
        message = f"is {kind!r}; the only kind of {GROUP} is {KIND}"
        raise _ProblemsError(_problem(document, (*path, "kind"), message))
    group = str(value.get("apiVersion", "")).rpartition("/")[0]
    if kind not in _READERS or group not in ("", _GROUPS.get(kind, "")):
        return None
    try:
        found = _READERS[kind](value)
    except msgspec.ValidationError as error:
        raise _ProblemsError(_problem(document, path, f"{kind}: {error}")) from None
    return FoundObject(kind, found.name, found)


def _problem(document: Document, path: tuple[str | int, ...], message: str) -> Problem:
    return Problem(document.source, document.line(path), message, json_path(path))


class ManifestsSource:
    """A directory, and the snapshot that its files make."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.view = Snapshot()
        self.generation = 0
        """Counts the changes of `view`."""
        self._files: dict[Path, _File] = {}
        self._conflicts: tuple[Problem, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the files now; empty while every one of them is in force."""
        return tuple(p for file in self._files.values() for p in file.problems) + self._conflicts

    def refresh(self) -> bool:
        """Read what has changed; whether anything had. Raises ManifestsError."""
        paths = manifest_files(self.directory)
        before = self.problems
        changed = [path for path in self._files if path not in paths]
        for path in changed:
            del self._files[path]
        for path in paths:
            signature = _signature(path)
            file = self._files.setdefault(path, _File())
            if signature is None or signature != file.signature:
                file.signature = signature
                _read(path, file)
                changed.append(path)
        if changed:
            self._rebuild()
            for problem in self.problems:
                if problem not in before:
                    log.error("%s (what the file last said stays in force)", problem)
        return bool(changed)

    @property
    def title(self) -> str:
        """The directory."""
        return str(self.directory)

    def checks(self) -> Iterable[Check]:
        """Always ready: what a broken file last said stays in force."""
        yield Check("manifests", ready=True, note="; ".join(map(str, self.problems)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the directory while the block runs."""
        watching = asyncio.create_task(self.watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def fetch_namespace(self, _name: str, _timeout: float) -> None:
        """None: there is nobody to ask."""
        return

    async def watch(self) -> None:
        """Look for changes once a second, until cancelled.

        A look costs a stat per file. It sees what a file notification misses: a ConfigMap volume
        swaps a symbolic link above the files, and network file systems notify nobody.
        """
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            try:
                if self.refresh():
                    log.info("manifests changed: %d policies in force", len(self.view.policies))
            except ManifestsError as error:
                log.error("%s (the last state stays in force)", error)

    def _rebuild(self) -> None:
        by_kind: dict[str, dict[str, Any]] = {kind: {} for kind in (KIND, *_READERS)}
        conflicts = []
        for path, file in sorted(self._files.items()):
            for kind, name, model in file.objects:
                if name in by_kind[kind]:
                    message = f"a second {kind} named {name!r}; the first one counts"
                    conflicts.append(Problem(str(path), 0, message))
                by_kind[kind].setdefault(name, model)
        self._conflicts = tuple(conflicts)
        self.view = Snapshot(
            policies=PolicySet(by_kind[KIND].values()),
            namespaces=by_kind["Namespace"],
            runtime_classes=by_kind["RuntimeClass"],
            nodes=Nodes(by_kind["Node"].values()),
        )
        self.generation += 1


def _signature(path: Path) -> _Signature | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path, file: _File) -> None:
    """Read a file anew; where that fails, its last objects stay."""
    objects, file.problems = read_manifest(path)
    if not file.problems:
        file.objects = objects
