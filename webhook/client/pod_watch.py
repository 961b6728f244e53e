"""One pod in sight: read once, then watched."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import msgspec

from webhook.client.pod import (
    Json,
    NotAPodError,
    PodName,
    PodNotFoundError,
    check_pod,
    phase,
    waiting,
)
from webhook.client.retry import STOOD, Backoff, log
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.watch import WatchLimits

_WATCH_SECONDS = 290
_LIMITS = WatchLimits()
_USUAL = ("ContainerCreating", "PodInitializing")

_pause = asyncio.sleep
_decode = msgspec.json.Decoder().decode


class Sight:
    """A pod as it was last seen. `keep_in_sight` makes one."""

    pod: Json
    """Of a pod that is gone, what was last known of it."""

    def __init__(self, server: ApiServer, name: PodName, backoff: Backoff) -> None:
        self.name = name
        self.gone = False
        """Deleted, perhaps with another one in its place."""
        self.has_final_state = False
        """Whether `pod` is the pod as it was when it was deleted, not only some time before."""
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
                if not self.gone:
                    # Whatever ends watches early, and however often: it is not asked in a rush.
                    await _pause(self._backoff.first)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._changed.set()

    async def _watch(self) -> None:
        """One watch. Raises where it was refused or broke, unless it was of use until then.

        Of a pod that does not change there is nothing to hear, and a proxy may end a quiet watch.
        An end in good order is no failure: else a quiet pod would spend all of the back-off.
        """
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
        answered, heard = math.inf, False
        try:
            async with self._server.watch(
                path, "application/json", _WATCH_SECONDS + 10, _LIMITS
            ) as lines:
                answered = time.monotonic()
                async for line in lines:
                    heard |= self._take(_decode(line))
                    if self.gone:
                        return
        except ApiError as error:
            if error.status != 410:
                raise
            # The version to resume from is no longer known (KEP-365): look again.
            self._version = None
        except (msgspec.DecodeError, Unreachable) as error:
            if not heard and time.monotonic() - answered < STOOD:
                raise self._broken(error) from None

    def _broken(self, error: Exception) -> Unreachable:
        if isinstance(error, Unreachable):
            return error
        return Unreachable(f"{self.name}: the watch says what is not JSON")

    def _take(self, event: object) -> bool:
        """Whether the event says something of the pod. Raises NotAPodError and ApiError."""
        item = event.get("object") if isinstance(event, dict) else None
        if not isinstance(event, dict) or not isinstance(item, dict):
            raise NotAPodError(f"{self.name}: the answer is not a Pod")
        kind = event.get("type")
        if kind == "ERROR" and isinstance(code := item.get("code"), int):
            raise ApiError(code, str(item.get("message") or ""))
        if kind == "BOOKMARK" and (version := _version(item)):
            # It has no more of a pod than this.
            self._version = version
            return False
        self._see(item)
        if kind == "DELETED":
            self.has_final_state = not self.gone
            self.gone = True
        self._changed.set()
        return True

    def _see(self, pod: Json) -> None:
        check_pod(pod, self.name)
        metadata = pod["metadata"]
        if metadata["uid"] != (self._uid or metadata["uid"]):
            self.gone = True
            return
        self.pod, self._uid = pod, metadata["uid"]
        self._version = metadata["resourceVersion"]


def _version(item: Json) -> str | None:
    metadata = item.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else None


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
