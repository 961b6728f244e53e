"""Manifests on disk as the cluster: SettlePolicy, Namespace, RuntimeClass and Node documents.

A directory's files are read again when they change. A file that breaks keeps what it last said in
force; the problem is there to be seen until the file is mended or gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from webhook.cluster.manifest_loader import (
    READERS,
    FoundObject,
    duplicates,
    manifest_files,
    read_manifest,
)
from webhook.cluster.snapshot import Snapshot
from webhook.cluster.source import Check
from webhook.core.cluster.nodes import Nodes
from webhook.core.constants import KIND
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.errors import ManifestProblem
from webhook.core.policy.model import SettlePolicy
from webhook.tasks import supervise

log = logging.getLogger(__name__)

_POLL_INTERVAL_SECONDS = 1.0

_Signature: TypeAlias = tuple[int, int, int]


@dataclass(slots=True)
class _LoadedFile:
    signature: _Signature | None = None
    objects: list[FoundObject] = field(default_factory=list)
    problems: tuple[ManifestProblem, ...] = ()


class ManifestsSource:
    """A directory, and the snapshot that its files make."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.view = Snapshot()
        self.policies_in_force: Mapping[str, SettlePolicy] = {}
        """The policies in force, by name."""
        self.generation = 0
        """Counts the changes of `view`."""
        self._files: dict[Path, _LoadedFile] = {}
        self._duplicates: tuple[ManifestProblem, ...] = ()
        self._new_problems: list[ManifestProblem] = []
        self._directory_problems: tuple[ManifestProblem, ...] = ()

    @property
    def problems(self) -> tuple[ManifestProblem, ...]:
        """What is wrong with the files now; empty while every one of them is in force."""
        found = tuple(p for file in self._files.values() for p in file.problems)
        return found + self._duplicates + self._directory_problems

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
            file = self._files.setdefault(path, _LoadedFile())
            if signature is None or signature != file.signature:
                file.signature = signature
                _reload(path, file)
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
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
            try:
                # In a thread: reading thousands of files takes seconds.
                changed = await asyncio.to_thread(self.refresh)
            except Exception as error:  # Whatever it is, the next look may be better.
                if not self._directory_problems:
                    log.error("%s (the last state stays in force)", str(error) or repr(error))
                self._directory_problems = (ManifestProblem(str(self.directory), 0, str(error)),)
                continue
            if self._directory_problems:
                log.info("%s is back", self.directory)
            self._directory_problems = ()
            if changed:
                for problem in self._new_problems:
                    log.error("%s (what the file last said stays in force)", problem)
                log.info("manifests changed: %d policies in force", len(self.view.policies))

    def _rebuild(self) -> None:
        by_kind: dict[str, dict[str, Any]] = {kind: {} for kind in (KIND, *READERS)}
        objects = [found for _, file in sorted(self._files.items()) for found in file.objects]
        for found in objects:
            by_kind[found.kind].setdefault(found.name, found.model)
        self._duplicates = duplicates(objects)
        self.policies_in_force = by_kind[KIND]
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


def _reload(path: Path, file: _LoadedFile) -> None:
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
