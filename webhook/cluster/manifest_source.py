"""Manifests on disk as the cluster: SettlePolicy, Namespace, RuntimeClass and Node documents.

A directory's files are read again when they change. A file that breaks keeps what it last said in
force; the problem is there to be seen until the file is mended or gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from webhook.cluster.decode import read_namespace, read_node, read_runtime_class
from webhook.cluster.snapshot import Snapshot
from webhook.cluster.source import Check
from webhook.core.cluster.nodes import Nodes
from webhook.core.constants import GROUP, KIND
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.errors import InvalidPolicyError, ManifestProblem, json_path
from webhook.core.policy.model import SettlePolicy, parse_policy
from webhook.core.preview.document import Document, DocumentError
from webhook.core.preview.yaml_documents import each_document
from webhook.tasks import supervise

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
    source: str
    line: int


@dataclass(slots=True)
class _File:
    signature: _Signature | None = None
    objects: list[FoundObject] = field(default_factory=list)
    problems: tuple[ManifestProblem, ...] = ()


def manifest_files(directory: Path) -> list[Path]:
    """The manifests directly inside a directory, by name. Raises ManifestsError."""
    try:
        return sorted(
            path
            for path in directory.iterdir()
            # A link to nowhere is a file that cannot be read, not one that was taken away.
            if path.suffix in SUFFIXES and (path.is_file() or path.is_symlink())
        )
    except OSError as error:
        raise ManifestsError(f"{directory}: {error.strerror}") from None


def read_manifest(path: Path) -> tuple[list[FoundObject], tuple[ManifestProblem, ...]]:
    """What podsettle reads of a file's documents, and everything that is wrong with them.

    Objects of kinds that podsettle does not read are passed by.
    """
    try:
        return read_text(path.read_bytes(), str(path))
    except OSError as error:
        return [], (ManifestProblem(str(path), 0, error.strerror or str(error)),)


def read_text(text: bytes, source: str) -> tuple[list[FoundObject], tuple[ManifestProblem, ...]]:
    """The same for a text that is already here; `source` names it in the problems."""
    objects: list[FoundObject] = []
    problems: list[ManifestProblem] = []
    try:
        for document in each_document(text, source):
            for path, value in _items(document.value):
                try:
                    found = _read_object(document, path, value)
                except _ProblemsError as error:
                    problems.extend(error.problems)
                else:
                    objects.extend([found] if found else [])
    except DocumentError as error:
        # Of a text that breaks off, nothing counts.
        return [], (ManifestProblem(error.source, error.line, error.message),)
    return objects, tuple(problems)


def conflicts(objects: Iterable[FoundObject]) -> tuple[ManifestProblem, ...]:
    """What stands in more than one place: the first counts."""
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
    def __init__(self, *problems: ManifestProblem) -> None:
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
    if kind != KIND and KIND.casefold() in kind.casefold():
        message = f"is {kind!r}; did you mean {KIND}?"
        raise _ProblemsError(_problem(document, (*path, "kind"), message))
    if kind == KIND:
        try:
            policy = parse_policy(value)
        except InvalidPolicyError as error:
            raise _ProblemsError(
                *(_problem(document, (*path, *p.path), p.message) for p in error.errors)
            ) from None
        return FoundObject(kind, policy.metadata.name, policy, document.source, document.line(path))
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
    return FoundObject(kind, found.name, found, document.source, document.line(path))


def _problem(document: Document, path: tuple[str | int, ...], message: str) -> ManifestProblem:
    return ManifestProblem(document.source, document.line(path), message, json_path(path))


class ManifestsSource:
    """A directory, and the snapshot that its files make."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.view = Snapshot()
        self.documents: Mapping[str, SettlePolicy] = {}
        """The policies in force, by name."""
        self.generation = 0
        """Counts the changes of `view`."""
        self._files: dict[Path, _File] = {}
        self._conflicts: tuple[ManifestProblem, ...] = ()
        self._new_problems: list[ManifestProblem] = []
        self._lost: tuple[ManifestProblem, ...] = ()

    @property
    def problems(self) -> tuple[ManifestProblem, ...]:
        """What is wrong with the files now; empty while every one of them is in force."""
        found = tuple(p for file in self._files.values() for p in file.problems)
        return found + self._conflicts + self._lost

    def refresh(self) -> bool:
        """Read what has changed; whether anything had. Raises ManifestsError."""
        paths = manifest_files(self.directory)
        before = self.problems
        present = set(paths)
        changed = [path for path in self._files if path not in present]
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
            known = set(before)
            self._new_problems = [p for p in self.problems if p not in known]
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
        async with supervise(self.watch):
            yield

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
                # In a thread: reading thousands of files takes seconds.
                changed = await asyncio.to_thread(self.refresh)
            except Exception as error:  # Whatever it is, the next look may be better.
                if not self._lost:
                    log.error("%s (the last state stays in force)", str(error) or repr(error))
                self._lost = (ManifestProblem(str(self.directory), 0, str(error)),)
                continue
            if self._lost:
                log.info("%s is back", self.directory)
            self._lost = ()
            if changed:
                for problem in self._new_problems:
                    log.error("%s (what the file last said stays in force)", problem)
                log.info("manifests changed: %d policies in force", len(self.view.policies))

    def _rebuild(self) -> None:
        by_kind: dict[str, dict[str, Any]] = {kind: {} for kind in (KIND, *_READERS)}
        objects = [found for _, file in sorted(self._files.items()) for found in file.objects]
        for found in objects:
            by_kind[found.kind].setdefault(found.name, found.model)
        self._conflicts = conflicts(objects)
        self.documents = by_kind[KIND]
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
    """Read a file anew; where that fails, its last objects stay.

    Of one that was never right, what is right in it counts.
    """
    objects, file.problems = read_manifest(path)
    if file.objects and not objects and not file.problems:
        # As a file is while it is being rewritten.
        file.problems = (
            ManifestProblem(str(path), 0, "says nothing any more; remove it if so meant"),
        )
    if not file.problems or not file.objects:
        file.objects = objects
