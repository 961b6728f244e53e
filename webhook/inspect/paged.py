"""Paged lists of the API server's objects, decoded one at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import TooLargeError, Unreachable, status_message
from webhook.cluster.progress import OnProgress, ignore_progress
from webhook.cluster.raw_responses import Page, decode_page
from webhook.cluster.reflector import FULL_OBJECTS, METADATA_ONLY
from webhook.cluster.rights import Right
from webhook.core.pod import DECODE_ERRORS
from webhook.inspect.findings import Area, Looked
from webhook.inspect.pod_selection import PodSelection

T = TypeVar("T")

_FIRST_PAGE_ITEMS, _MAX_PAGE_ITEMS = 10, 250
"""The number of objects in a page. A pod often takes 5 to 50 KB, and 1.5 MiB at most, because etcd
stores no more. So the first page is small, and the size of each page decides that of the next."""
_SMALL_PAGE_BYTES = 2 * 1024 * 1024
"""After a smaller page, the next one has twice as many objects."""
_MAX_PAGE_BYTES = 8 * 1024 * 1024
"""A larger page is requested again with half as many objects."""
_PAGE_TIMEOUT_SECONDS = 30.0
"""A busy API server takes seconds for a page of large pods."""

_OK, _FORBIDDEN, _NOT_FOUND, _GONE = 200, 403, 404, 410
_WORST_FIRST = (Looked.NOT_LOOKED_AT, Looked.PARTLY, Looked.LOOKED_AT)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A kind of objects that can be listed."""

    name: str
    """The plural name, such as `pods`."""
    kind: str
    type: type[T]
    """The struct that an object is decoded to."""
    group: str = ""
    namespaced: bool = True
    metadata_only: bool = False
    kept: str = ""
    """How long the API server keeps the objects. Empty: until they are deleted."""

    def path(self, namespace: str | None = None) -> str:
        """Return the path of the list, in one namespace or in all of them."""
        prefix = f"/apis/{self.group}/v1" if self.group else "/api/v1"
        where = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return f"{prefix}{where}/{self.name}"

    def right(self, namespace: str | None = None) -> Right:
        """Return the right that a list needs."""
        return Right("list", self.group, self.name, namespace if self.namespaced else None)


class Areas:
    """What was looked at so far, by the name of the resource."""

    def __init__(self) -> None:
        self._areas: dict[str, Area] = {}

    def record(self, area: Area) -> None:
        """Record the result of a list. Of several results for a resource, the worst one counts."""
        known = self._areas.get(area.name)
        if known is None or _WORST_FIRST.index(area.looked) < _WORST_FIRST.index(known.looked):
            self._areas[area.name] = area
        elif area.looked is known.looked and area.why not in known.why:
            whys = "; ".join(filter(None, (known.why, area.why)))
            self._areas[area.name] = Area(area.name, area.looked, whys, known.right)

    def named(self, name: str) -> Area:
        """Return the area of a resource. One that was never listed was not looked at."""
        return self._areas.get(name) or Area(name, Looked.NOT_LOOKED_AT)

    @property
    def all(self) -> tuple[Area, ...]:
        """All areas, in the order of their first lists."""
        return tuple(self._areas.values())


class PagedReader:
    """Lists of objects of an API server, and what could be read of them."""

    def __init__(
        self,
        server: ApiServer,
        on_progress: OnProgress = ignore_progress,
        pods: PodSelection = PodSelection(),  # noqa: B008 (it is frozen)
    ) -> None:
        """Read lists of an API server. `pods` selects the pods among them."""
        self._server = server
        self._pods = pods
        self._on_progress = on_progress
        self._server_time: datetime | None = None
        self.areas = Areas()

    @property
    def now(self) -> datetime:
        """The time of the last response, by the clock of the API server.

        It is the time of this machine if no response says its time.
        """
        return self._server_time or datetime.now(UTC)

    async def objects(
        self, resource: Resource[T], namespace: str | None = None, field_selector: str = ""
    ) -> AsyncIterator[T]:
        """Yield the objects of a list. Record in `areas` what could not be read. Raise nothing."""
        decode = msgspec.json.Decoder(resource.type).decode
        accept = METADATA_ONLY.format(list="List") if resource.metadata_only else FULL_OBJECTS
        limit = _FIRST_PAGE_ITEMS
        query: dict[str, str] = {}
        if field_selector:
            query["fieldSelector"] = field_selector
        elif resource.kind == "Pod":
            query |= self._pods.query()
        count = malformed = 0
        while True:
            query["limit"] = str(limit)
            try:
                content, token, size = await self._page(resource, namespace, query, accept)
            except TooLargeError as error:
                if limit == 1:
                    self.areas.record(Area(resource.name, Looked.PARTLY, str(error)))
                    return
                limit //= 2
                continue
            except _ListError as error:
                looked = Looked.PARTLY if count else Looked.NOT_LOOKED_AT
                self.areas.record(Area(resource.name, looked, error.why, error.right))
                return
            if content is not None:
                for raw in content.raw_items or ():
                    count += 1
                    try:
                        # A copy, so that an object that is kept does not keep the whole page.
                        value = decode(bytes(raw))
                    except DECODE_ERRORS:
                        malformed += 1
                    else:
                        yield value
                remaining = content.metadata.remaining if token else 0
                length = None if remaining is None else count + remaining
                self._on_progress(resource.name, count, length)
            if not token:
                break
            query["continue"] = token
            if size < _SMALL_PAGE_BYTES:
                limit = min(2 * limit, _MAX_PAGE_ITEMS)
        self.areas.record(_complete(resource, malformed))

    async def _page(
        self, resource: Resource[T], namespace: str | None, query: dict[str, str], accept: str
    ) -> tuple[Page | None, str, int]:
        """Return a page, the token of the next page, and its size in bytes.

        Raises TooLargeError and _ListError.
        """
        path = f"{resource.path(namespace)}?{urlencode(query)}"
        try:
            answer = await self._server.fetch(
                "GET", path, accept=accept, timeout=_PAGE_TIMEOUT_SECONDS, max_bytes=_MAX_PAGE_BYTES
            )
        except TooLargeError:
            raise
        except Unreachable as error:
            raise _ListError(str(error)) from None
        self._server_time = answer.server_time or self._server_time
        if answer.status == _OK:
            try:
                page = decode_page(answer.content)
            except DECODE_ERRORS:
                raise _ListError("the response is not a list") from None
            return page, page.metadata.next, len(answer.content)
        if answer.status == _GONE and (token := _token_of(answer.content)):
            # The version of the list has expired. The token continues with the current objects, so
            # that no object is yielded twice.
            return None, token, 0
        if answer.status == _FORBIDDEN:
            raise _ListError("", str(resource.right(namespace)))
        if answer.status == _NOT_FOUND:
            raise _ListError("the API server does not know this resource")
        raise _ListError(f"{answer.status}: {status_message(answer.content)}")


class _ListError(Exception):
    """A page that could not be read."""

    def __init__(self, why: str, right: str = "") -> None:
        super().__init__(why)
        self.why, self.right = why, right


class _StatusMetadata(msgspec.Struct):
    next: str = msgspec.field(default="", name="continue")


class _Status(msgspec.Struct):
    metadata: _StatusMetadata = msgspec.field(default_factory=_StatusMetadata)


_decode_status = msgspec.json.Decoder(_Status).decode


def _token_of(content: bytes) -> str:
    """Return the token in the answer 410, with which an expired list continues. It may be empty."""
    try:
        return _decode_status(content).metadata.next
    except DECODE_ERRORS:
        return ""


def _complete(resource: Resource[T], malformed: int) -> Area:
    """Return the area of a list that was read to its end."""
    whys = [f"{malformed} could not be decoded"] if malformed else []
    whys += [resource.kept] if resource.kept else []
    return Area(resource.name, Looked.PARTLY if whys else Looked.LOOKED_AT, "; ".join(whys))
