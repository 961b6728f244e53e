"""A dump of a cluster in files, such as the output of `kubectl get pods,events -A -o json`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from webhook.cluster.manifest_loader import manifest_files
from webhook.core.pod import DECODE_ERRORS
from webhook.core.preview.document import DocumentError
from webhook.core.preview.yaml_documents import iterate_documents
from webhook.inspect.findings import Area, Looked
from webhook.inspect.paged import Areas, Resource
from webhook.inspect.scan import resources

T = TypeVar("T")

_ANY_TIME = re.compile(
    rb'"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?)(Z|[+-]\d\d:\d\d)?"', re.ASCII
)
_TIME = re.compile(rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?Z"')
"""A time as the API server writes it. Such times are in the order of their texts."""
_EVENTS_GROUP = "events.k8s.io/"
_CORE_FIELDS = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
}
"""The fields of an event of events.k8s.io, with their names in an event of core/v1."""


class DumpReader:
    """Lists of the objects in files. A kind without an object counts as not looked at."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.areas = Areas()
        self.problems: list[str] = []
        """Why files, or objects in them, could not be read."""
        self._objects: dict[str, list[bytes]] = {each.kind: [] for each in resources.ALL}
        for path in paths:
            for file in manifest_files(path) if path.is_dir() else (path,):
                self._read(file)

    @property
    def now(self) -> datetime:
        """The newest time in the objects. Nodes report often, so it is the time of the dump.

        A time in the future counts as the present.
        """
        present = datetime.now(UTC)
        found = (
            time[1]
            for encoded in self._objects.values()
            for content in encoded
            for time in _TIME.finditer(content)
        )
        newest = max(found, default=b"").decode()
        try:
            return min(datetime.fromisoformat(newest).replace(tzinfo=UTC), present)
        except ValueError:
            return present

    async def objects(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        field_selector: str = "",  # noqa: ARG002
    ) -> AsyncIterator[T]:
        """Yield the objects of a kind. Record in `areas` what could not be read."""
        decode = msgspec.json.Decoder(resource.type).decode
        encoded = self._objects[resource.kind]
        malformed = 0
        for content in encoded:
            try:
                value = decode(content)
            except DECODE_ERRORS as error:
                malformed += 1
                self.problems.append(f"{resource.kind}: {error}")
                continue
            if not (namespace and resource.namespaced) or _namespace_of(value) == namespace:
                yield value
        whys = [] if encoded else [f"the manifests contain no {resource.kind}"]
        whys += [f"{malformed} could not be decoded"] if malformed else []
        whys += [resource.kept] if encoded and resource.kept else []
        looked = Looked.PARTLY if encoded else Looked.NOT_LOOKED_AT
        self.areas.record(
            Area(resource.name, looked if whys else Looked.LOOKED_AT, "; ".join(whys))
        )

    def _read(self, file: Path) -> None:
        try:
            documents = iterate_documents(file.read_bytes(), str(file))
            for document in documents:
                for value in _items(document.value):
                    kind = value.get("kind")
                    if kind in self._objects:
                        self._objects[kind].append(_encoded(value))
        except OSError as error:
            self.problems.append(f"{file}: {error.strerror or error}")
        except DocumentError as error:
            self.problems.append(f"{error.source}:{error.line}: {error.message}")


def _items(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a document, which may be a list such as a PodList."""
    if not isinstance(value, dict):
        return
    kind, items = str(value.get("kind", "")), value.get("items")
    if kind.endswith("List") and isinstance(items, list):
        for item in items:
            if isinstance(item, dict):
                yield {"kind": kind.removesuffix("List"), **item}
    else:
        yield value


def _encoded(value: dict[str, Any]) -> bytes:
    """Return an object as JSON in the form of core/v1, with all times in UTC."""
    if str(value.get("apiVersion", "")).startswith(_EVENTS_GROUP):
        value = {_CORE_FIELDS.get(key, key): inner for key, inner in value.items()}
    return _ANY_TIME.sub(_in_utc, msgspec.json.encode(value))


def _in_utc(found: re.Match[bytes]) -> bytes:
    """Return a time in UTC. A time without a zone counts as UTC, as in YAML."""
    if found[2] == b"Z":
        return found[0]
    try:
        time = datetime.fromisoformat(found[0].decode().strip('"'))
        utc = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return found[0]
    return f'"{utc:%Y-%m-%dT%H:%M:%SZ}"'.encode()


def _namespace_of(value: Any) -> str:
    """Return the namespace of an object that `resources` names."""
    namespace: str = value.metadata.namespace
    return namespace
