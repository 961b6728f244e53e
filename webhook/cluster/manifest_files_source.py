"""The source that reads the cluster view from files and directories of manifests.

The source reads a file again when it changes. While a file has problems, its last valid objects
stay in force, and the readiness check reports the problems.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from webhook.cluster.manifest_loader import (
    ManifestObject,
    ManifestsError,
    duplicates,
    files_of,
    read_manifest,
    view_of,
)
from webhook.cluster.source import Check, NamespaceLookup
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.tasks import supervise

log = logging.getLogger(__name__)

# The interval can be short, because a poll only calls `stat` for each file.
POLL_INTERVAL_SECONDS = 1.0


@dataclass(slots=True)
class _LoadedFile:
    """A file with its last valid objects and its current problems."""

    signature: tuple[int, int, int] | None = None
    """The modification time, length and inode. None if the file cannot be accessed."""
    objects: list[ManifestObject] = field(default_factory=list)
    problems: tuple[ManifestProblem, ...] = ()
    is_outdated: bool = False
    """Whether the objects are those of earlier content, because the current one has problems."""


class ManifestsSource:
    """A source whose view of the cluster is kept up to date from manifests."""

    def __init__(self, *paths: Path, poll_interval_seconds: float = POLL_INTERVAL_SECONDS) -> None:
        """Each of `paths` is a file or a directory. Of duplicate objects, the first counts."""
        self._poll_interval_seconds = poll_interval_seconds
        self.paths = paths
        self.title = ", ".join(map(str, paths))
        self.view = Snapshot()
        self._files: dict[Path, _LoadedFile] = {}
        self._duplicates: tuple[ManifestProblem, ...] = ()
        self._path_problems: tuple[ManifestProblem, ...] = ()

    @property
    def problems(self) -> tuple[ManifestProblem, ...]:
        """The current problems of the files and of the paths."""
        file_problems = tuple(p for file in self._files.values() for p in file.problems)
        return file_problems + self._duplicates + self._path_problems

    def refresh(self) -> bool:
        """Read the files that have changed, and return whether a file has changed.

        Raises ManifestsError.
        """
        paths = files_of(self.paths)
        present = set(paths)
        changed = [path for path in self._files if path not in present]
        self._files = {path: self._files.get(path) or _LoadedFile() for path in paths}
        for path, file in self._files.items():
            signature = None
            with suppress(OSError):
                status = path.stat()
                signature = status.st_mtime_ns, status.st_size, status.st_ino
            if signature is None or signature != file.signature:
                file.signature = signature
                _reload(path, file)
                changed.append(path)
        if changed:
            objects = [item for file in self._files.values() for item in file.objects]
            self._duplicates = duplicates(objects)
            self.view = view_of(objects)
        return bool(changed)

    def checks(self) -> Iterable[Check]:
        """Return a check that always passes, because the last valid state stays in force."""
        note = "; ".join(map(str, self.problems))
        # The command that starts the server has printed the first problems.
        yield Check("manifests", ready=True, note=note, logged=bool(note))

    def running(self) -> AbstractAsyncContextManager[None]:
        """Watch the files while the block runs."""
        return supervise(self.watch)

    async def fetch_namespace(self, _name: str, _client: str, _seconds: float) -> NamespaceLookup:
        """Find nothing, because the view already contains all namespaces of the files."""
        return NamespaceLookup.MISSING

    async def watch(self) -> None:
        """Poll the files for changes until cancelled.

        inotify would miss changes. The kubelet updates a ConfigMap volume by replacing a symbolic
        link to the directory of the files, and network file systems send no notifications.
        """
        while True:
            await asyncio.sleep(self._poll_interval_seconds)
            known = set(self.problems)
            try:
                # To read thousands of files takes seconds, so a thread does it.
                changed = await asyncio.to_thread(self.refresh)
            except Exception as error:  # The next poll may succeed.
                if not self._path_problems:
                    reason = str(error) or repr(error)
                    log.error("manifests: %s; the last valid state stays in force", reason)
                # A ManifestsError names the path.
                place = "" if isinstance(error, ManifestsError) else self.title
                self._path_problems = (ManifestProblem(place, 0, str(error) or repr(error)),)
                continue
            if self._path_problems:
                log.info("manifests: %s can be read again", self.title)
            self._path_problems = ()
            if changed:
                for problem in (each for each in self.problems if each not in known):
                    log.error("manifests: %s%s", problem, self._effect(problem))
                log.info("manifests: changed; %d policies in force", len(self.view.policies))

    def _effect(self, problem: ManifestProblem) -> str:
        """Return what the problem of a file means for the objects in the file."""
        file = self._files.get(Path(problem.source))
        if file is None or problem not in file.problems:
            return ""  # A duplicate, whose message says which object counts.
        if file.is_outdated:
            return "; the file's last valid state stays in force"
        rest = "the valid objects of the file are" if file.objects else "nothing of the file is"
        return f"; {rest} in force"


def _reload(path: Path, file: _LoadedFile) -> None:
    """Read a file again. If it has problems, keep the objects of its last valid content.

    If there are no such objects, use the valid objects of the new content.
    """
    objects, file.problems = read_manifest(path)
    if file.objects and not objects and not file.problems:
        # The file may be empty only for a moment, because an editor is writing it.
        message = "is empty; its last content stays in effect until the file is deleted"
        file.problems = (ManifestProblem(str(path), 0, message),)
    file.is_outdated = bool(file.problems and file.objects)
    if not file.is_outdated:
        file.objects = objects
