"""The objects of a cluster, decoded one at a time: paged lists of an API server, or manifests.

Manifests are, for example, the output of `kubectl get pods,events -A -o json`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec

from webhook.cluster.client import ApiServer, PageLimits
from webhook.cluster.errors import ApiError, TooLargeError, Unreachable
from webhook.cluster.manifests import Manifests
from webhook.cluster.progress import OnProgress
from webhook.cluster.reader import ClusterReader, path_of
from webhook.cluster.reflector import FULL_OBJECTS, METADATA_ONLY
from webhook.cluster.rights import Right
from webhook.core.pod import DECODE_ERRORS
from webhook.core.preview.controller_fields import fill_in_nulls
from webhook.core.printable import list_first
from webhook.core.types import Json
from webhook.inspect.findings import MAX_LISTED, Area, Looked
from webhook.inspect.objects import Event, LivePod, NamedObject, SigningRequest
from webhook.kubeconfig.go_yaml import without_nulls

T = TypeVar("T")

_PAGES = PageLimits(10, 250, 8 * 1024 * 1024, timeout_seconds=30.0, continues=True)
"""A pod often takes 5 to 50 KB, and 1.5 MiB at most, because etcd stores no more. So the first page
is small, and the size of each page decides that of the next. A busy API server takes seconds for a
page of large pods."""

_ABSENT = "the manifests contain none"
_MAX_DIGITS = 100
"""Python converts no more than 4,300 digits to an integer."""


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A kind of objects that can be listed."""

    name: str
    """The plural name, such as `pods`."""
    kind: str
    type: type[T]
    """The struct that an object is decoded to."""
    group: str = ""
    accept: str = FULL_OBJECTS
    kept: str = ""
    """How long the API server keeps the objects. Empty: until they are deleted."""

    def right(self, namespace: str | None = None) -> Right:
        """Return the right that the list needs, in one namespace or in all of them."""
        return Right("list", self.group, self.name, namespace)

    def area(self, malformed: int) -> Area:
        """Return the area of a list that was read to its end."""
        undecoded = f"{malformed} could not be decoded" if malformed else ""
        why = "; ".join(filter(None, (undecoded, self.kept)))
        return Area(self.name, Looked.PARTLY if why else Looked.LOOKED_AT, why)


PODS = Resource("pods", "Pod", LivePod)
NODE_METADATA = Resource("nodes", "Node", NamedObject, accept=METADATA_ONLY)
EVENTS = Resource(
    "events", "Event", Event, kept="the API server keeps events for an hour by default"
)
SIGNING_REQUESTS = Resource(
    "certificatesigningrequests",
    "CertificateSigningRequest",
    SigningRequest,
    group="certificates.k8s.io",
    kept="Kubernetes deletes approved requests after an hour",
)
ABOUT = "involvedObject.uid="
"""The beginning of the field selector for the events about one object."""
ALL = (PODS, NODE_METADATA, EVENTS, SIGNING_REQUESTS)


class Areas(dict[str, Area]):
    """What was looked at so far, by the name of the resource, in the order of the first lists."""

    def record(self, area: Area) -> None:
        """Record the result of a list. Of several results for a resource, the worst one counts."""
        known, order = self.setdefault(area.name, area), list(Looked).index
        if order(area.looked) > order(known.looked):
            self[area.name] = area
        elif area.looked is known.looked and area.why not in known.why:
            whys = "; ".join(filter(None, (known.why, area.why)))
            self[area.name] = Area(area.name, area.looked, whys, known.right)

    def __missing__(self, name: str) -> Area:
        """Return the area of a resource that was never listed."""
        return Area(name, Looked.NOT_LOOKED_AT)


class PagedReader:
    """Lists of objects of an API server, and what could be read of them."""

    def __init__(
        self,
        server: ApiServer,
        on_progress: OnProgress = lambda *_: None,
        pod_selectors: Mapping[str, str] | None = None,
    ) -> None:
        """Read lists. `pod_selectors` are parameters of those of pods, such as `labelSelector`."""
        self._server = server
        self._pod_selectors = pod_selectors or {}
        self._on_progress = on_progress
        self.areas = Areas()

    @property
    def now(self) -> datetime:
        """The time of the last response, by the clock of the API server.

        It is the time of this machine if no response says its time.
        """
        return self._server.time or datetime.now(UTC)

    async def objects(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        field_selectors: Sequence[str] = (),
    ) -> AsyncIterator[T]:
        """Yield the objects of a list, or of one list for each field selector. Raise nothing.

        Record in `areas` what could not be read.
        """
        decode = msgspec.json.Decoder(resource.type).decode
        selectors = self._pod_selectors if resource.kind == "Pod" else {}
        queries: list[Mapping[str, str]] = [{"fieldSelector": each} for each in field_selectors]
        accept = resource.accept.format(list="List")
        count, malformed, right = 0, 0, resource.right(namespace)
        try:
            for query in queries or [selectors]:
                async for page in self._server.pages(path_of(right), accept, query, _PAGES):
                    for raw in page.raw_items or ():
                        count += 1
                        try:
                            # A copy, so that an object that is kept does not keep the whole page.
                            value = decode(bytes(raw))
                        except DECODE_ERRORS:
                            malformed += 1
                        else:
                            yield value
                    remaining = page.metadata.remaining if page.metadata.next else 0
                    length = None if remaining is None else count + remaining
                    self._on_progress(resource.name, count, length)
        except (ApiError, Unreachable) as error:
            status = error.status if isinstance(error, ApiError) else 0
            is_partly = count or isinstance(error, TooLargeError)
            looked = Looked.PARTLY if is_partly else Looked.NOT_LOOKED_AT
            whys = {403: "", 404: "the API server does not know this resource"}
            denied = str(right) if status == 403 else ""
            self.areas.record(Area(resource.name, looked, whys.get(status, str(error)), denied))
        else:
            self.areas.record(resource.area(malformed))

    async def named(self, group: str, kind: str, name: str, namespace: str | None) -> list[Json]:
        """Return the objects of a kind with a name, in one namespace or in all of them.

        Raises NotAllowedError, and ApiError and Unreachable for other failures.
        """
        reader, resource = ClusterReader(self._server), f"{kind.lower()}s"
        if namespace is None:
            query = urlencode({"fieldSelector": f"metadata.name={name}"})
            return await reader.list(Right("list", group, resource), query)
        found = await reader.get(Right("get", group, resource, namespace, name))
        return [found] if found else []


class DumpReader:
    """Lists of objects in manifests. A kind without an object counts as not looked at."""

    def __init__(self, manifests: Manifests, on_progress: OnProgress = lambda *_: None) -> None:
        self.areas = Areas()
        self.problems: list[str] = []
        """Why objects could not be read."""
        self.manifests = manifests
        self._names: dict[tuple[str, str], Mapping[str, Sequence[int]]] = {}
        self._on_progress = on_progress

    @property
    def now(self) -> datetime:
        """The time of the dump."""
        return self.manifests.newest_time

    async def objects(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        field_selectors: Sequence[str] = (),
    ) -> AsyncIterator[T]:
        """Yield the objects of a kind. Record in `areas` what could not be read.

        Of the field selectors, only those with ABOUT are regarded. Of several copies of a pod, the
        newest counts: files overlap, and `oc adm must-gather` writes each pod twice.
        """
        decode = msgspec.json.Decoder(resource.type).decode
        stored = self.manifests.objects.get((resource.group, resource.kind), ())
        about = [each for each in field_selectors if each.startswith(ABOUT)]
        indexes: Sequence[int] = range(len(stored))
        if about:
            indexes = [index for each in about for index in self._events_about.get(each, ())]
        older = _older_copies(stored) if resource.kind == "Pod" else frozenset()
        malformed = 0
        for count, index in enumerate(indexes, 1):
            if index in older:
                continue
            try:
                value: Any = decode_object(stored[index], decode)
            except DECODE_ERRORS as error:
                malformed += 1
                title = f"{resource.kind} {'/'.join(_names_of(stored[index]))}".rstrip()
                self.problems.append(f"{title}: {error}")
                continue
            if not namespace or value.metadata.namespace == namespace:
                yield value
            self._on_progress(resource.name, count, len(indexes))
        absent = Area(resource.name, Looked.NOT_LOOKED_AT, _ABSENT)
        self.areas.record(resource.area(malformed) if stored else absent)

    def view_area(self, resource: str, group: str, kind: str, valid: Iterable[str]) -> Area:
        """Return the area of a kind of which the view has the `valid` objects."""
        known = {*valid}
        names = [each or "one without a name" for each in self._numbers(group, kind).keys() - known]
        if known and not names:
            return Area(resource, Looked.LOOKED_AT)
        why = f"not valid: {list_first(sorted(names), MAX_LISTED)}" if names else _ABSENT
        return Area(resource, Looked.PARTLY if known else Looked.NOT_LOOKED_AT, why)

    async def named(self, group: str, kind: str, name: str, namespace: str | None) -> list[Json]:
        """Return the objects of a kind with a name, in one namespace or in all of them.

        One that names no namespace is in any. Of several copies, the newest comes first.
        """
        stored, here = self.manifests.objects.get((group, kind), ()), {None, "", namespace}
        indexes = self._numbers(group, kind).get(name, ()) if name else ()
        found = [msgspec.json.decode(stored[index]) for index in reversed(indexes)]
        for each in found:
            fill_in_nulls(each)
        found.sort(key=lambda each: _version(each["metadata"].get("resourceVersion")), reverse=True)
        return [
            each for each in found if namespace is None or each["metadata"].get("namespace") in here
        ]

    def _numbers(self, group: str, kind: str) -> Mapping[str, Sequence[int]]:
        """Return the numbers of the objects of a kind by name, which is empty if it is no text."""
        if (group, kind) not in self._names:
            names: defaultdict[str, list[int]] = defaultdict(list)
            for index, content in enumerate(self.manifests.objects.get((group, kind), ())):
                try:
                    found = msgspec.json.decode(content, type=NamedObject)
                except DECODE_ERRORS:
                    names["".join(_names_of(content)[-1:])].append(index)
                else:
                    names[found.metadata.name].append(index)
            self._names[group, kind] = names
        return self._names[group, kind]

    @cached_property
    def _events_about(self) -> Mapping[str, Sequence[int]]:
        """The events about each object, by the selector: a scan asks for those of single pods."""
        decode = msgspec.json.Decoder(EVENTS.type).decode
        found: defaultdict[str, list[int]] = defaultdict(list)
        for index, content in enumerate(self.manifests.objects.get(("", EVENTS.kind), ())):
            with suppress(*DECODE_ERRORS):
                found[f"{ABOUT}{decode(content).involved_object.uid}"].append(index)
        return found


def decode_object(content: bytes, decode: Callable[[bytes], T]) -> T:
    """Decode an object as the API server does. Raises one of DECODE_ERRORS.

    A null among texts is an empty text, and every other one is an absent field.
    """
    try:
        return decode(content)
    except msgspec.ValidationError:
        value = msgspec.json.decode(content)
        if isinstance(value, dict):
            fill_in_nulls(value)
        return decode(msgspec.json.encode(without_nulls(value)))


def _older_copies(pods: Iterable[bytes]) -> set[int]:
    """Return the numbers of pods of which another copy is newer, or equal and later."""
    # By hash, and each copy as one integer: fifty thousand keys and pairs would take 20 MB.
    newest: dict[int, int] = {}
    older = set()
    for number, content in enumerate(pods):
        try:
            metadata = msgspec.json.decode(content, type=NamedObject).metadata
        except DECODE_ERRORS:
            continue
        if metadata.uid:
            copy = _version(metadata.resource_version) << 32 | number
            key = hash((metadata.namespace, metadata.name, metadata.uid))
            if (known := newest.setdefault(key, copy)) != copy:
                first, newest[key] = sorted((known, copy))
                older.add(first & 0xFFFF_FFFF)
    return older


def _version(version: object) -> int:
    """Return a resource version. It is a number (KEP-5504); 0 if it is none."""
    if isinstance(version, str) and version.isdecimal() and len(version) <= _MAX_DIGITS:
        return int(version)
    return 0


def _names_of(content: bytes) -> list[str]:
    """Return the namespace and the name of an object, as far as they are texts."""
    value = msgspec.json.decode(content)
    metadata = value.get("metadata") if isinstance(value, dict) else None
    found = metadata if isinstance(metadata, dict) else {}
    return [each for key in ("namespace", "name") if isinstance(each := found.get(key), str)]


ObjectReader: TypeAlias = PagedReader | DumpReader
"""A source of objects: an API server, or the files of a dump."""
