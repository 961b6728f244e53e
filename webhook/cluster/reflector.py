"""A mirror of one kind of object: listed once, then watched.

Why not `kubernetes.informer`: it keeps whole typed objects (a Namespace costs kilobytes instead of
a few labels), cannot ask for metadata only, does not ask for bookmarks, runs a thread per kind, and
after a connection error it calls again without a pause. The rules here are those of client-go's
Reflector (KEP-365, KEP-956, `tools/cache/reflector.go`):

- the list is paged and says where the watch begins; a watch resumes from the last version it saw;
- bookmarks keep that version young while nothing changes;
- 410 Gone, as a status or as an event, means: list again;
- a silent watch is followed by another one (see `WatchLimits`); any watch is after some minutes;
- errors back off, with jitter, up to half a minute.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from typing import Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from webhook.cluster.client import ApiServer, Json, WatchLimits
from webhook.cluster.errors import ApiError, Unreachable
from webhook.process_memory import malloc_trim

log = logging.getLogger(__name__)

T = TypeVar("T")

FULL_OBJECTS = "application/json"
METADATA_ONLY = (
    "application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1,application/json;q=0.5"
)

_PAGE_ITEMS = 500
_WATCH_TIMEOUT_SECONDS = 290
_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.2, 30.0

_decode_json = msgspec.json.Decoder().decode


class _Gone(Exception):  # noqa: N818
    """The version to resume from is no longer known."""


def _gone_or(error: ApiError) -> Exception:
    return _Gone() if error.status == 410 else error


class Reflector(Generic[T]):
    """Keeps `objects` the way the API server has them, and says so on each change.

    `read` turns an object into what is kept of it, or None for one that is of no use; one that it
    raises msgspec.ValidationError for is left out. `changed` is called after each change, and once
    after each list. `name` narrows it to one object, which is how RBAC lets somebody list and watch
    no other.
    """

    def __init__(
        self,
        server: ApiServer,
        path: str,
        read: Callable[[Json], T | None],
        on_change: Callable[[], None],
        *,
        metadata_only: bool = False,
        name: str | None = None,
        limits: WatchLimits = WatchLimits(),  # noqa: B008 (it is frozen)
    ) -> None:
        self.objects: dict[str, T] = {}
        self.synced = asyncio.Event()
        self.connected = False
        """Whether the last call to the API server went through."""
        self.problem = ""
        self._server = server
        self._path = path
        self._read_object = read
        self._on_change = on_change
        self._metadata_only = metadata_only
        self._field_selector = {"fieldSelector": f"metadata.name={name}"} if name else {}
        self._limits = limits
        self._version: str | None = None

    async def run(self) -> None:
        """List and watch until cancelled."""
        backoff = _MIN_BACKOFF_SECONDS
        while True:
            began = time.monotonic()
            try:
                if self._version is None:
                    await self._list()
                    # What was read is many times what is kept of it.
                    await asyncio.to_thread(malloc_trim)
                await self._watch()
                backoff = _MIN_BACKOFF_SECONDS
            except _Gone:
                log.info("%s: the version to resume from is gone; listing again", self._path)
                self._version = None
            except (ApiError, Unreachable) as error:
                if self.connected or not self.problem:
                    known = "what is known stays in force" if self.synced.is_set() else "not ready"
                    log.warning("%s: %s; %s", self._path, error, known)
                self.connected, self.problem = False, str(error)
                if time.monotonic() - began > backoff:
                    backoff = _MIN_BACKOFF_SECONDS  # It was well for longer than it was waited for.
                # Jitter, or all replicas come back at the same moment.
                await asyncio.sleep(backoff * random.uniform(0.5, 1.5))  # noqa: S311
                backoff = min(backoff * 2, _MAX_BACKOFF_SECONDS)

    async def _list(self) -> None:
        found: dict[str, T] = {}
        query = {"limit": str(_PAGE_ITEMS), **self._field_selector}
        while True:
            try:
                page = await self._server.page(
                    f"{self._path}?{urlencode(query)}", self._accept("List")
                )
            except ApiError as error:
                raise _gone_or(error) from None
            for item in page.items:
                kept = self._decode(item)
                if kept is not None:
                    found[item["metadata"]["name"]] = kept
            if not page.metadata.next:
                break
            query["continue"] = page.metadata.next
        self.objects = found
        self._version = page.metadata.resource_version
        self._mark_connected()
        self.synced.set()
        self._on_change()

    async def _watch(self) -> None:
        seconds = int(_WATCH_TIMEOUT_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311
        query = {
            "watch": "1",
            "allowWatchBookmarks": "1",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
            **self._field_selector,
        }
        path = f"{self._path}?{urlencode(query)}"
        answered = math.inf
        try:
            async with self._server.watch(
                path, self._accept(""), seconds + 10, self._limits
            ) as lines:
                self._mark_connected()
                answered = time.monotonic()
                async for line in lines:
                    self._apply_event(_decode_json(line))
        except ApiError as error:
            raise _gone_or(error) from None
        except Unreachable as error:
            if time.monotonic() - answered < self._limits.stable_seconds:
                raise
            log.debug("%s: the watch broke: %s; watching again", self._path, error)
        except msgspec.DecodeError as error:
            raise Unreachable(f"{self._path}: half an event: {error}") from None

    def _apply_event(self, event: Json) -> None:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            if item.get("code") == 410:
                raise _Gone
            raise ApiError(item.get("code", 0), item.get("message", ""))
        metadata = item["metadata"]
        self._version = metadata["resourceVersion"]
        if kind == "BOOKMARK":
            return
        name = metadata["name"]
        kept = None if kind == "DELETED" else self._decode(item)
        if kept is None:
            if self.objects.pop(name, None) is None:
                return
        elif self.objects.get(name) == kept:
            # A Node's heartbeat changes nothing that is kept of it.
            return
        else:
            self.objects[name] = kept
        self._on_change()

    def _decode(self, item: Json) -> T | None:
        """None also for what cannot be read: one such object must not hide all the others."""
        try:
            return self._read_object(item)
        except msgspec.ValidationError as error:
            log.error("%s/%s is left out: %s", self._path, item["metadata"]["name"], error)
            return None

    def _mark_connected(self) -> None:
        if not self.connected and self.problem:
            log.info("%s: connected again", self._path)
        self.connected, self.problem = True, ""

    def _accept(self, suffix: str) -> str:
        return METADATA_ONLY.format(list=suffix) if self._metadata_only else FULL_OBJECTS
