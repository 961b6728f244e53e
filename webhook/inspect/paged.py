"""Paged lists of the API server's objects, decoded one at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
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

T = TypeVar("T")

_FIRST_PAGE_ITEMS, _MAX_PAGE_ITEMS = 10, 250
"""The number of objects in a page. A pod often takes 5 to 50 KB, and 1.5 MiB at most, because etcd
stores no more. So the first page is small, and the size of each page decides that of the next."""
_SMALL_PAGE_BYTES = 2 * 1024 * 1024
"""After a smaller page, the next one has twice as many objects."""
_MAX_PAGE_BYTES = 8 * 1024 * 1024
"""A larger page is requested again with half as many objects."""
_TIMEOUT_SECONDS = 30.0
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

    def area(self, malformed: int) -> Area:
        """Return the area of a list that was read to its end."""
        whys = [f"{malformed} could not be decoded"] if malformed else []
        whys += [self.kept] if self.kept else []
        return Area(self.name, Looked.PARTLY if whys else Looked.LOOKED_AT, "; ".join(whys))


class Areas:
    """What was looked at so far, by the name of the resource."""

    def __init__(self) -> None:
        self._areas: dict[str, Area] = {}

    def record(self, area: Area) -> None:
        """Record the result of a list. Of several results for a resource, the worst one counts."""
        known = self._areas.setdefault(area.name, area)
        if _WORST_FIRST.index(area.looked) < _WORST_FIRST.index(known.looked):
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
        pod_selectors: Mapping[str, str] | None = None,
    ) -> None:
        """Read lists of an API server.

        `pod_selectors` are parameters of the lists of pods, such as `labelSelector`. An empty one
        selects all.
        """
        self._server = server
        self._pod_selectors = {k: v for k, v in (pod_selectors or {}).items() if v}
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
        queries = [{"fieldSelector": each} for each in field_selectors] or [selectors]
        count = malformed = 0
        try:
            for query in queries:
                async for page in self._pages(resource, namespace, query):
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
        except _ListError as error:
            looked = Looked.PARTLY if count or error.is_partly else Looked.NOT_LOOKED_AT
            self.areas.record(Area(resource.name, looked, error.why, error.right))
        else:
            self.areas.record(resource.area(malformed))

    async def _pages(
        self, resource: Resource[T], namespace: str | None, query: Mapping[str, str]
    ) -> AsyncIterator[Page]:
        """Yield the pages of a list. Raises _ListError."""
        accept = METADATA_ONLY.format(list="List") if resource.metadata_only else FULL_OBJECTS
        limit, token = _FIRST_PAGE_ITEMS, ""
        while True:
            parameters = {**query, "limit": limit, **({"continue": token} if token else {})}
            path = f"{resource.path(namespace)}?{urlencode(parameters)}"
            try:
                answer = await self._server.fetch(
                    "GET", path, accept=accept, timeout=_TIMEOUT_SECONDS, max_bytes=_MAX_PAGE_BYTES
                )
            except TooLargeError as error:
                if limit == 1:
                    raise _ListError(str(error), is_partly=True) from None
                limit //= 2
                continue
            except Unreachable as error:
                raise _ListError(str(error)) from None
            self._server_time = answer.server_time or self._server_time
            if answer.status == _OK:
                try:
                    page = decode_page(answer.content)
                except DECODE_ERRORS:
                    raise _ListError("the response is not a list") from None
                yield page
                token = page.metadata.next
                if len(answer.content) < _SMALL_PAGE_BYTES:
                    limit = min(2 * limit, _MAX_PAGE_ITEMS)
            elif answer.status == _FORBIDDEN:
                raise _ListError("", str(resource.right(namespace)))
            elif answer.status == _NOT_FOUND:
                raise _ListError("the API server does not know this resource")
            elif answer.status != _GONE or not (token := _token_of(answer.content)):
                # The version of a list expires. Then the token in the answer continues with the
                # current objects, so that no object is yielded twice.
                raise _ListError(f"{answer.status}: {status_message(answer.content)}")
            if not token:
                return


class _ListError(Exception):
    """A list that could not be read to its end."""

    def __init__(self, why: str, right: str = "", *, is_partly: bool = False) -> None:
        super().__init__(why)
        self.why, self.right, self.is_partly = why, right, is_partly


def _token_of(content: bytes) -> str:
    """Return the token in the answer 410, with which an expired list continues. It may be empty."""
    with suppress(*DECODE_ERRORS):
        return msgspec.json.decode(content, type=_Status).metadata.get("continue") or ""
    return ""


class _Status(msgspec.Struct):
    metadata: dict[str, str | None] = {}
