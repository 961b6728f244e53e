"""A directory of manifests as the source of the cluster view.

The source reads a file again when it changes. While a file has problems, its last valid objects
stay in force, and the readiness check reports the problems.
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

# A poll costs one `stat` per file.
POLL_INTERVAL_SECONDS = 1.0

_Signature: TypeAlias = tuple[int, int, int]


@dataclass(slots=True)
class _LoadedFile:
    signature: _Signature | None = None
    objects: list[FoundObject] = field(default_factory=list)
    problems: tuple[ManifestProblem, ...] = ()


class ManifestsSource:
    """A view of the cluster, kept up to date from the manifests of a directory."""

    def __init__(
        self, directory: Path, poll_interval_seconds: float = POLL_INTERVAL_SECONDS
    ) -> None:
        self._poll_interval_seconds = poll_interval_seconds
        self.directory = directory
        self.view = Snapshot()
        self.policies_in_force: Mapping[str, SettlePolicy] = {}
        """The last valid state of each policy, by name."""
        self.generation = 0
        """The number of changes of `view`."""
        self._files: dict[Path, _LoadedFile] = {}
        self._duplicates: tuple[ManifestProblem, ...] = ()
        self._new_problems: list[ManifestProblem] = []
        self._directory_problems: tuple[ManifestProblem, ...] = ()

    @property
    def problems(self) -> tuple[ManifestProblem, ...]:
        """The current problems of the files and of the directory."""
        found = tuple(p for file in self._files.values() for p in file.problems)
        return found + self._duplicates + self._directory_problems

    def refresh(self) -> bool:
        """Read the files that have changed, and return whether there are any.

        Raises ManifestsError.
        """
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
        """The directory, for messages."""
        return str(self.directory)

    def checks(self) -> Iterable[Check]:
        """Return a check that always passes, because the last valid state stays in force."""
        yield Check("manifests", ready=True, note="; ".join(map(str, self.problems)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the directory while the block runs."""
        async with supervise(self.watch):
            yield

    async def fetch_namespace(self, _name: str, _timeout: float) -> None:
        """Return None: the view already holds all namespaces that the files define."""
        return

    async def watch(self) -> None:
        """Poll the directory for changes until cancelled.

        File notifications would miss changes: a ConfigMap volume replaces a symbolic link above the
        files, and network file systems send no notifications.
        """
        while True:
            await asyncio.sleep(self._poll_interval_seconds)
            try:
                # Thousands of files take seconds, so a thread reads them.
                changed = await asyncio.to_thread(self.refresh)
            except Exception as error:  # The next poll may succeed.
                if not self._directory_problems:
                    reason = str(error) or repr(error)
                    log.error("manifests: %s; the last valid state stays in force", reason)
                self._directory_problems = (ManifestProblem(str(self.directory), 0, str(error)),)
                continue
            if self._directory_problems:
                log.info("manifests: %s can be read again", self.directory)
            self._directory_problems = ()
            if changed:
                for problem in self._new_problems:
                    log.error("manifests: %s; the file's last valid state stays in force", problem)
                log.info("manifests: changed; %d policies in force", len(self.view.policies))

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
    """Read a file again; where it has problems, keep its last objects.

    Where it has no last objects, use the valid ones of the file.
    """
    objects, file.problems = read_manifest(path)
    if file.objects and not objects and not file.problems:
        # A file is empty for a moment while an editor rewrites it.
        message = "is empty; its last content stays in effect until the file is deleted"
        file.problems = (ManifestProblem(str(path), 0, message),)
    if not file.problems or not file.objects:
        file.objects = objects
