"""A local copy of all objects of one kind, kept up to date by list and watch (an informer).

The rules are those of client-go's Reflector (KEP-365, KEP-956, `tools/cache/reflector.go`):

- The list is paged. The first watch starts at the resource version of the list. Each later watch
  starts at the last received resource version.
- Bookmarks update this version while no object changes.
- After a 410 Gone, as a response or as an event, the reflector lists again.
- The reflector replaces a watch that is silent for too long (see `WatchLimits`), and every watch
  after some minutes.
- After each attempt that ends at once, the pause grows: an exponential back-off with jitter. It
  holds for errors, for 410 Gone, and for watches that a proxy ends without an error.

podsettle does not use `kubernetes.informer`. It stores complete typed objects, so a Namespace takes
kilobytes although podsettle needs only its labels. It cannot request metadata only, and it requests
no bookmarks. It runs a thread per kind, and retries without a pause after a connection error.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, TooLargeError, Unreachable
from webhook.cluster.watch import WatchLimits
from webhook.core.pod import DECODE_ERRORS
from webhook.process_memory import malloc_trim
from webhook.tasks import TimeSlice

log = logging.getLogger(__name__)

T = TypeVar("T")

FULL_OBJECTS = "application/json"
METADATA_ONLY = (
    "application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1,application/json;q=0.5"
)

# The duration of a watch: a little less than client-go's minimum of 5 minutes.
_WATCH_TIMEOUT_SECONDS = 290
_DECIMAL = re.compile(r"[0-9]+")
_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.2, 30.0

# One thread for all reflectors: lists of several kinds end at the same time, and with a thread for
# each, the threads would stay, each with a heap of its own.
_trimming = ThreadPoolExecutor(max_workers=1, thread_name_prefix="malloc_trim")


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str
    name: str = ""
    """It is empty in a bookmark."""


class _Object(msgspec.Struct):
    metadata: _Metadata


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw
    """Undecoded: a Node can have megabytes of which podsettle reads nothing."""


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


_decode_object = msgspec.json.Decoder(_Object).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_status = msgspec.json.Decoder(_Status).decode


class Reflector(Generic[T]):
    """A copy of the API server's objects in `objects`, by name.

    `decode` converts the JSON of an object to the value that is stored, or returns None if the
    object is to be ignored. It blocks the event loop, so it should decode only what it needs. If it
    raises msgspec.ValidationError, the object is logged and ignored. `on_change` is called after
    each change, and once after each list. `name` selects a single object, because RBAC can grant
    list and watch for one name. `not_found_hint` says what to do after a 404.
    """

    def __init__(
        self,
        server: ApiServer,
        path: str,
        decode: Callable[[msgspec.Raw], T | None],
        on_change: Callable[[], None],
        *,
        accept: str = FULL_OBJECTS,
        name: str | None = None,
        not_found_hint: str = "",
        limits: WatchLimits = WatchLimits(),  # noqa: B008 (it is frozen)
    ) -> None:
        self.objects: dict[str, T] = {}
        self.synced = asyncio.Event()
        """An event that is set after the first list."""
        self.problem = ""
        """Why the last request failed. It is empty if the request succeeded."""
        self._server = server
        self._path = path
        self._decode_object = decode
        self._on_change = on_change
        self._accept = accept
        self._field_selector = {"fieldSelector": f"metadata.name={name}"} if name else {}
        self._not_found_hint = not_found_hint
        self._limits = limits
        self._resource_version: str | None = None
        self._answered_at = math.inf
        """When the watch of this attempt was answered."""

    def add(self, name: str, value: T, version: str) -> bool:
        """Add an object that a request beside the watch has read. Return whether it still exists.

        An object that the watch does not know although it has passed its resource version was
        deleted since. Versions of one kind are integers in the order of changes. Kubernetes
        promises that from 1.35 on (KEP-5504). Before, and from servers that imitate its API, they
        may be any text. If they cannot be compared, the object counts as existing.
        """
        if name not in self.objects:
            passed = self._resource_version or ""
            are_numbers = _DECIMAL.fullmatch(version) and _DECIMAL.fullmatch(passed)
            if int(version) <= int(passed) if are_numbers else version == passed:
                return False
            self.objects[name] = value
        return True

    async def run(self) -> None:
        """List and watch until cancelled."""
        backoff, expired = _MIN_BACKOFF_SECONDS, False
        now = asyncio.get_running_loop().time
        while True:
            self._answered_at = math.inf
            try:
                if self._resource_version is None:
                    await self._list()
                    # A list takes many times the memory of the stored values.
                    await asyncio.get_running_loop().run_in_executor(_trimming, malloc_trim)
                await self._watch()
            except ApiError as error:
                if error.status == 410:
                    log.info(
                        "watch %s: the resource version has expired; listing again", self._path
                    )
                    self._resource_version = None
                    if not expired:  # The server answers again, for example after an outage.
                        backoff, expired = _MIN_BACKOFF_SECONDS, True
                elif error.status == 404 and self._not_found_hint:
                    self._mark_failed(f"{error}: {self._not_found_hint}")
                else:
                    self._mark_failed(str(error))
            except Unreachable as error:
                self._mark_failed(str(error))
            # A watch that ends after this time, or after a silence, did not end immediately. A list
            # or an error that takes long is no reason to try again soon.
            if now() - self._answered_at > min(backoff, self._limits.silent_seconds):
                backoff, expired = _MIN_BACKOFF_SECONDS, False
            # Without jitter, all replicas would reconnect at the same moment.
            await asyncio.sleep(backoff * random.uniform(0.5, 1.5))  # noqa: S311
            backoff = min(backoff * 2, _MAX_BACKOFF_SECONDS)

    async def _list(self) -> None:
        """Replace the stored values with a list of all objects, and record its version."""
        objects: dict[str, T] = {}
        version = None
        time_slice = TimeSlice()
        try:
            accept = self._accept.format(list="List")
            pages = self._server.pages(self._path, accept, self._field_selector)
            async for page in pages:
                for item in page.raw_items or ():
                    name = _decode_object(item).metadata.name
                    value = self._decode(name, item)
                    if value is not None:
                        objects[name] = value
                    await time_slice.yield_if_over()
                version = page.metadata.resource_version
        except DECODE_ERRORS as error:
            raise Unreachable(f"list {self._path}: an object is not valid: {error}") from None
        self.objects = objects
        self._resource_version = version
        self._mark_connected()
        self.synced.set()
        self._on_change()

    async def _watch(self) -> None:
        """Apply the events of one watch until it ends or its connection breaks."""
        seconds = int(_WATCH_TIMEOUT_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311
        query = {
            "watch": "1",
            "allowWatchBookmarks": "1",
            "resourceVersion": self._resource_version,
            "timeoutSeconds": str(seconds),
            **self._field_selector,
        }
        path = f"{self._path}?{urlencode(query)}"
        now = asyncio.get_running_loop().time
        try:
            async with self._server.watch(
                path, self._accept.format(list=""), seconds + 10, self._limits
            ) as lines:
                self._mark_connected()
                self._answered_at = now()
                time_slice = TimeSlice()
                async for line in lines:
                    self._apply_event(_decode_event(line))
                    # Reading does not suspend while lines are buffered, which may be thousands.
                    await time_slice.yield_if_over()
        except TooLargeError as error:
            # The same line would come again. A list continues behind it.
            raise ApiError(410, str(error)) from None
        except Unreachable as error:
            if now() - self._answered_at < self._limits.stable_seconds:
                raise
            log.debug("watch %s: interrupted: %s; watching again", self._path, error)
        except msgspec.ValidationError as error:
            # The same event would come again. A list continues behind it.
            self._resource_version = None
            raise Unreachable(f"watch {self._path}: invalid event: {error}") from None
        except DECODE_ERRORS as error:
            raise Unreachable(f"watch {self._path}: incomplete event: {error}") from None

    def _apply_event(self, event: _Event) -> None:
        """Apply one event of a watch to the stored values.

        Raises ApiError and DECODE_ERRORS.
        """
        if event.type == "ERROR":
            status = _decode_status(event.object)
            raise ApiError(status.code, status.message)
        metadata = _decode_object(event.object).metadata
        self._resource_version = metadata.resource_version
        if event.type == "BOOKMARK":
            return
        name = metadata.name
        value = None if event.type == "DELETED" else self._decode(name, event.object)
        if value is None:
            if self.objects.pop(name, None) is None:
                return
        elif self.objects.get(name) == value:
            # For example a Node's heartbeat, which changes none of the stored fields.
            return
        else:
            self.objects[name] = value
        self._on_change()

    def _decode(self, name: str, item: msgspec.Raw) -> T | None:
        """Return the value to store, or None if the object is to be ignored.

        An object that cannot be decoded is ignored, so that all other objects remain usable.
        """
        try:
            return self._decode_object(item)
        except msgspec.ValidationError as error:
            log.error("watch %s: ignoring object %s: %s", self._path, name, error)
            return None

    def _mark_failed(self, problem: str) -> None:
        if not self.problem:
            effect = "the last state stays in force" if self.synced.is_set() else "not ready"
            log.warning("watch %s: %s; %s", self._path, problem, effect)
        self.problem = problem

    def _mark_connected(self) -> None:
        if self.problem:
            log.info("watch %s: connected again", self._path)
        self.problem = ""
