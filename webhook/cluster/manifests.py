"""Manifests that a command reads once: files, directories and standard input, of any size.

The webhook reads its manifests again when they change: see `manifest_files_source`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import msgspec

from webhook.cluster.manifest_loader import (
    ManifestObject,
    duplicates,
    files_of,
    load_manifest,
    view_of,
)
from webhook.cluster.progress import OnProgress, ignore_progress
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.core.preview.document import DocumentError
from webhook.core.preview.text_objects import Json, TextObject

STDIN = Path("-")
_STDIN_TITLE = "stdin"

# The literal beginning lets `re` skip to the next text that may be a time.
_TIME = re.compile(
    rb'"(2\d{3}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.\d{1,9})?(Z|[+-]\d\d:\d\d)?"', re.ASCII
)
_EVENTS_GROUP = "events.k8s.io/"
_CORE_FIELDS = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
}
"""The fields of an event of events.k8s.io, with their names in an event of core/v1."""


@dataclass(frozen=True)
class Manifests:
    """The cluster that manifests describe, and all of their objects."""

    title: str
    """The paths, for messages."""
    view: Snapshot
    problems: tuple[ManifestProblem, ...]
    """All problems, among them `unreadable`."""
    unreadable: tuple[ManifestProblem, ...]
    """Why texts could not be read, or not to their end."""
    objects: Mapping[str, Sequence[Json]]
    """The objects as JSON, by kind. An event has the form of core/v1."""
    have_subdirectories: bool
    """Whether a directory has one, whose files are not read."""

    @cached_property
    def newest_time(self) -> datetime:
        """The newest time in the objects. Nodes report often, so it is the time of the dump.

        A time in the future counts as the present.
        """
        present = datetime.now(UTC)
        newest, others = b"", []
        for encoded in self.objects.values():
            for content in encoded:
                for found in _TIME.finditer(content):
                    if found[2] == b"Z":
                        # Such times are in the order of their texts.
                        newest = max(newest, found[1])
                    else:
                        others.append(found[0])
        times = [time for text in (newest + b"Z", *others) if (time := _in_utc(text)) is not None]
        return min(max(times, default=present), present)


def read_manifests(
    paths: Collection[Path],
    read_stdin: Callable[[], bytes],
    on_progress: OnProgress = ignore_progress,
) -> Manifests:
    """Read manifests. The path `-` is standard input. Raises ManifestsError."""
    loaded: list[ManifestObject] = []
    problems: list[ManifestProblem] = []
    unreadable: list[ManifestProblem] = []
    objects: dict[str, list[Json]] = {}
    for file in _files(paths):
        title = _title(file)
        try:
            text = read_stdin() if file == STDIN else file.read_bytes()
            keep = _Keep(objects, title, text, on_progress)
            found, new_problems = load_manifest(text, title, keep)
        except OSError as error:
            unreadable.append(ManifestProblem(title, 0, error.strerror or str(error)))
        except DocumentError as error:
            # The text may be cut off, so none of its policies is used.
            unreadable.append(ManifestProblem(error.source, error.line, error.message))
        else:
            loaded += found
            problems += new_problems
    return Manifests(
        ", ".join(map(_title, paths)),
        view_of(loaded),
        (*unreadable, *problems, *duplicates(loaded)),
        tuple(unreadable),
        objects,
        any(path.is_dir() and any(each.is_dir() for each in path.iterdir()) for path in paths),
    )


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files at some paths, each once. Raises ManifestsError."""
    files: dict[Path, None] = {}
    for path in paths:
        files |= dict.fromkeys([path] if path == STDIN else files_of([path]))
    yield from files


def _title(path: Path) -> str:
    return _STDIN_TITLE if path == STDIN else str(path)


class _Keep:
    """A store of the objects of a text."""

    def __init__(
        self, objects: dict[str, list[Json]], title: str, text: bytes, on_progress: OnProgress
    ) -> None:
        self._objects = objects
        self._title = title
        self._lines = text.count(b"\n") + 1
        self._on_progress = on_progress

    def __call__(self, item: TextObject) -> None:
        """Keep an object."""
        if item.is_parsed:  # Others take no time.
            self._on_progress(self._title, item.line, self._lines)
        self._objects.setdefault(item.kind, []).append(_encoded(item))


def _encoded(item: TextObject) -> Json:
    encoded = item.json
    if not item.api_version.startswith(_EVENTS_GROUP):
        return encoded
    value = msgspec.json.decode(encoded)
    return msgspec.json.encode({_CORE_FIELDS.get(key, key): inner for key, inner in value.items()})


def _in_utc(text: bytes) -> datetime | None:
    """Return a time in UTC, or None if it is none. One without a zone counts as UTC, as in YAML."""
    try:
        time = datetime.fromisoformat(text.decode().strip('"'))
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
