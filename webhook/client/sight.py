"""One pod in sight: read once, then watched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import msgspec

from webhook.client.backoff import STOOD, Backoff, NotYetError, log
from webhook.client.pod import (
    Json,
    NotAPodError,
    PodName,
    PodNotFoundError,
    check_pod,
    phase,
    waiting,
)
from webhook.cluster.api import ApiError, ApiServer, Unreachable

_WATCH_SECONDS = 290
_USUAL = ("ContainerCreating", "PodInitializing")

_decode = msgspec.json.Decoder().decode


class Sight:
    """A pod as it was last seen. `keep_in_sight` makes one."""

    pod: Json
    """Of a pod that is gone, what was last known of it."""

    def __init__(self, server: ApiServer, name: PodName, backoff: Backoff) -> None:
        self.name = name
        self.gone = False
        """Deleted, perhaps with another one in its place."""
        self.succeeded = False
        """Whether the pod was ever seen in phase Succeeded."""
        self._server = server
        self._backoff = backoff
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self._version: str | None = None
        self._uid = ""
        self._said = ""

    async def refresh(self) -> None:
        """Look at once, at what is written rather than at what has been heard of."""
        try:
            pod = await self._server.request("GET", self.name.path)
        except ApiError as error:
            if error.status != 404:
                raise
            self.gone = True
        else:
            self._see(pod)

    async def change(self, seconds: float | None = None) -> None:
        """Return once something has changed, or `seconds` have passed.

        Raises what ended the watch for good.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()
        if self._failure is not None:
            raise self._failure

    def say_why(self, container: str) -> None:
        """Log what keeps the pod or the container from running, once, where a person may care."""
        why = waiting(self.pod, container)
        if phase(self.pod) == "Unknown":
            why = "phase Unknown: its node has not been heard of"
        if why and why != self._said and not why.startswith(_USUAL):
            log.info("%s, container %s: %s; waiting on", self.name, container, why)
        self._said = why

    async def begin(self) -> None:
        """Look for the first time. Raises PodNotFoundError."""
        await self._backoff(self.refresh)
        if self.gone:
            raise PodNotFoundError(f"{self.name} does not exist")

    async def follow(self) -> None:
        """Watch until the pod is gone."""
        try:
            while not self.gone:
                await self._backoff(self._watch)
        except NotYetError as error:
            # It is the way to the pod that fails, and callers know no such error.
            self._fail(Unreachable(f"{self.name}: {error}"))
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._changed.set()

    async def _watch(self) -> None:
        if self._version is None:
            await self.refresh()
            self._changed.set()
            if self.gone:
                return
        query = {
            "watch": "1",
            "fieldSelector": f"metadata.name={self.name.name}",
            "allowWatchBookmarks": "1",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        pods, _, _ = self.name.path.rpartition("/")
        path = f"{pods}?{urlencode(query)}"
        begun, heard = time.monotonic(), False
        broken: Unreachable | None = None
        try:
            async with self._server.lines(path, "application/json", _WATCH_SECONDS + 10) as lines:
                async for line in lines:
                    self._take(_decode(line))
                    heard = True
                    if self.gone:
                        return
        except ApiError as error:
            if error.status != 410:
                raise
            # The version to resume from is no longer known (KEP-365): look again.
            self._version = None
        except msgspec.DecodeError:
            pass
        except Unreachable as error:
            broken = error
        # Of a pod that does not change there is nothing to hear, and a proxy may end a quiet watch.
        # That is no failed attempt: else a quiet pod would spend all of the back-off.
        if not heard and time.monotonic() - begun < STOOD:
            raise broken or NotYetError("the watch ended with nothing said")

    def _take(self, event: Json) -> None:
        kind, item = event.get("type"), event.get("object")
        if not isinstance(item, dict):
            raise NotAPodError(f"{self.name}: the answer is not a Pod")
        if kind == "ERROR":
            raise ApiError(item.get("code", 0), item.get("message", ""))
        self._version = item["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return
        self._see(item)
        if kind == "DELETED":
            self.gone = True
        self._changed.set()

    def _see(self, pod: Json) -> None:
        check_pod(pod, self.name)
        metadata = pod["metadata"]
        if metadata["uid"] != (self._uid or metadata["uid"]):
            self.gone = True
            return
        self.pod, self._uid = pod, metadata["uid"]
        self._version = metadata["resourceVersion"]
        self.succeeded |= phase(pod) == "Succeeded"


@asynccontextmanager
async def keep_in_sight(server: ApiServer, name: PodName, backoff: Backoff) -> AsyncIterator[Sight]:
    """A pod that exists, watched while the block runs.

    Raises PodNotFoundError, ApiError and Unreachable.
    """
    sight = Sight(server, name, backoff)
    await sight.begin()
    task = asyncio.create_task(sight.follow())
    try:
        yield sight
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
