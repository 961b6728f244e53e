"""Manifests that a command reads once: files, directories and standard input, of any size.

The webhook reads its manifests again when they change: see `manifest_files_source`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from os import SEEK_END
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, BinaryIO, NamedTuple

import msgspec

from webhook.cluster.manifest_loader import (
    ManifestObject,
    duplicates,
    files_of,
    load_objects,
    view_of,
)
from webhook.cluster.progress import OnProgress
from webhook.core.constants import GROUP, KIND
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.core.preview.document import DocumentError
from webhook.core.preview.text_objects import Json, TextObject, iterate_item, iterate_objects

STDIN = Path("-")
_STDIN_TITLE = "stdin"
_BEGIN_OF_LIST = b'{\n    "apiVersion": "v1",\n    "items": [\n'
_BRACE = b"\n        }"
_END_OF_ITEM = _BRACE + b",\n"
_END_OF_LIST = re.compile(
    rb'\n        \}\n    \],\n    "kind": "List",\n    "metadata": \{[^{}]*\}\n\}\s*\Z'
)
"""How `kubectl get -o json` prints several objects. A string in JSON has no line break, so these
texts stand between items only."""
_MAX_END_BYTES = 1_024
_CHUNK_BYTES, _MAX_ITEM_BYTES = 1024 * 1024, 16 * 1024 * 1024
_MAX_READ_BYTES = 8 * 1024 * 1024
"""A longer List of kubectl is not kept in memory: that of 50,000 pods has 300 MB."""

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
    objects: Mapping[tuple[str, str], StoredObjects]
    """The objects as JSON, by API group and kind. An event has the form of core/v1."""
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
    paths: Collection[Path], stdin: BinaryIO, on_progress: OnProgress = lambda *_: None
) -> Manifests:
    """Read manifests. The path `-` is standard input. Raises ManifestsError."""
    loaded: list[ManifestObject] = []
    problems: list[ManifestProblem] = []
    unreadable: list[ManifestProblem] = []
    objects: dict[tuple[str, str], StoredObjects] = {}
    files = (each for path in paths for each in ([path] if path == STDIN else files_of([path])))
    for file in dict.fromkeys(files):
        title = _title(file)
        try:
            with _open(file, stdin) as stream:
                found, new_problems = _load(stream, title, objects, on_progress)
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
        any(os.path.isdir(path) and any(map(os.path.isdir, path.iterdir())) for path in paths),
    )


def _title(path: Path) -> str:
    return _STDIN_TITLE if path == STDIN else str(path)


def _open(path: Path, stdin: BinaryIO) -> IO[bytes]:
    """Open a file. What cannot be read twice, as a pipe, is copied.

    A long copy is a file without a name, which no other user can open.
    """
    with nullcontext(stdin) if path == STDIN else path.open("rb") as opened:
        if path != STDIN and opened.seekable():
            return path.open("rb")
        copy: IO[bytes] = SpooledTemporaryFile(_MAX_READ_BYTES)  # noqa: SIM115 (the caller closes)
        shutil.copyfileobj(opened, copy)
    copy.seek(0)
    return copy


def _load(
    stream: IO[bytes],
    title: str,
    objects: dict[tuple[str, str], StoredObjects],
    on_progress: OnProgress,
) -> tuple[list[ManifestObject], tuple[ManifestProblem, ...]]:
    """Load the objects of a text, and keep all of them in `objects`.

    Raises DocumentError and OSError.
    """
    size = stream.seek(0, SEEK_END)
    if size > _MAX_READ_BYTES and _is_list_of_kubectl(stream, size):
        kept: dict[tuple[str, str], StoredObjects] = {}
        loaded = load_objects(_items_of(stream, title, kept))
        for key, found in kept.items():
            objects.setdefault(key, StoredObjects()).stored += found.stored
        return loaded
    stream.seek(0)
    text = stream.read()
    lines = text.count(b"\n") + 1

    def items() -> Iterator[TextObject]:
        for item in iterate_objects(text, title):
            if item.kind:
                if item.is_parsed:  # Others take no time.
                    on_progress(title, item.line(), lines)
                objects.setdefault(_key(item), StoredObjects()).stored.append(_encoded(item))
            yield item

    return load_objects(items())


def _is_list_of_kubectl(stream: IO[bytes], size: int) -> bool:
    """Return whether a text begins and ends as `kubectl get -o json` prints a List."""
    stream.seek(max(0, size - _MAX_END_BYTES))
    end = _END_OF_LIST.search(stream.read())
    stream.seek(0)
    return end is not None and stream.read(len(_BEGIN_OF_LIST)) == _BEGIN_OF_LIST


def _items_of(
    stream: IO[bytes], title: str, kept: dict[tuple[str, str], StoredObjects]
) -> Iterator[TextObject]:
    """Yield the objects of a long List of kubectl, and keep where they stand in the file.

    Raises DocumentError.
    """
    file = _File(os.dup(stream.fileno()))
    begin, line, index, rest = len(_BEGIN_OF_LIST), _BEGIN_OF_LIST.count(b"\n") + 1, 0, b""
    while chunk := stream.read(_CHUNK_BYTES):
        *items, rest = (rest + chunk).split(_END_OF_ITEM)
        if len(rest) > _MAX_ITEM_BYTES:
            raise DocumentError(title, line, "an item is longer than an object can be")
        if end := _END_OF_LIST.search(rest):
            items.append(rest[: end.start()])
        for item in items:
            text = item + _BRACE
            for found in iterate_item(text, title, index, line):
                is_part = not (found.is_parsed or found.api_version.startswith(_EVENTS_GROUP))
                part = _Part(file, begin, len(text)) if is_part else _encoded(found)
                if found.kind:
                    kept.setdefault(_key(found), StoredObjects()).stored.append(part)
                yield found
            begin += len(item) + len(_END_OF_ITEM)
            line += text.count(b"\n") + 1
            index += 1


class _File:
    """An open file that several objects read. It is closed with the last of them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, begin: int, length: int) -> bytes:
        """Return a part of the file."""
        return os.pread(self._descriptor, length, begin)

    def __del__(self) -> None:
        os.close(self._descriptor)


class _Part(NamedTuple):
    """A part of a file."""

    file: _File
    begin: int
    length: int


class StoredObjects:
    """Objects of one kind, as JSON. Those of a long List are read from its file each time."""

    def __init__(self) -> None:
        self.stored: list[Json | _Part] = []

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, index: int) -> Json:
        stored = self.stored[index]
        if isinstance(stored, _Part):
            return stored.file.read(stored.begin, stored.length)
        return stored

    def __iter__(self) -> Iterator[Json]:
        return map(self.__getitem__, range(len(self)))


def _key(item: TextObject) -> tuple[str, str]:
    """Return the API group and the kind of an object. Longhorn and others have a Node too."""
    if item.kind == KIND:  # Without its apiVersion, it is an invalid policy.
        return GROUP, KIND
    is_event = item.api_version.startswith(_EVENTS_GROUP)
    return "" if is_event else item.api_version.rpartition("/")[0], item.kind


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
