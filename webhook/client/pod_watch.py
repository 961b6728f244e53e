"""A watch on one pod, which resumes after it breaks or expires."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import msgspec

from webhook.client.container_state import (
    NotAPodError,
    PodName,
    PodNotFoundError,
    check_pod,
    pod_phase,
    waiting_reason,
)
from webhook.client.retry import Backoff, StreamSettings, log
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.core.pod import DECODE_ERRORS
from webhook.core.types import Json

# The API server ends a watch after this time. The next watch resumes from the last
# resource version.
_WATCH_SECONDS = 290
# Every container waits for these reasons while its pod starts, so they are not logged.
_ORDINARY_REASONS = ("ContainerCreating", "PodInitializing")

_decode = msgspec.json.Decoder().decode


async def read_pod(server: ApiServer, name: PodName) -> Json | None:
    """Return the pod, or None if it does not exist.

    Raises NotAPodError, Unreachable, and ApiError for any other status than 404.
    """
    try:
        pod: Json = await server.request("GET", name.path)
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    check_pod(pod, name)
    return pod


class PodWatch:
    """The last known state of a pod. `watch_pod` creates one and keeps it up to date."""

    pod: Json
    """The pod in its last known state. It stays available after the pod is deleted."""

    def __init__(
        self,
        server: ApiServer,
        name: PodName,
        backoff: Backoff,
        settings: StreamSettings = StreamSettings(),  # noqa: B008 (it is frozen)
    ) -> None:
        self.name = name
        self.deleted = False
        """Whether the pod was deleted. A new pod may already have the same name."""
        self.has_final_state = False
        """Whether `pod` is the state in the event DELETED, so it cannot change any more."""
        self.resource_version: str | None = None
        """The resource version from which the next watch resumes. With None, the
        next watch reads the pod first."""
        self._server = server
        self._backoff = backoff
        self._settings = settings
        self._changed = asyncio.Event()
        self._watch_error: Exception | None = None
        self._uid = ""
        self._logged_reason = ""

    async def refresh(self) -> None:
        """Read the pod from the API server now."""
        pod = await read_pod(self._server, self.name)
        if pod is None:
            self.deleted = True
        else:
            self._update(pod)

    async def wait_for_change(self, seconds: float | None = None) -> None:
        """Wait until the pod has changed, or until `seconds` have passed.

        Raises the error of the watch if the watch failed and is not retried.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()
        if self._watch_error is not None:
            raise self._watch_error

    def log_waiting_reason(self, container: str) -> None:
        """Log why a container does not run, unless the reason is the same as before or ordinary."""
        reason = waiting_reason(self.pod, container)
        if pod_phase(self.pod) == "Unknown":
            reason = "phase Unknown: its node does not report"
        is_new = reason and reason != self._logged_reason
        if is_new and not reason.startswith(_ORDINARY_REASONS):
            log.info("%s, container %s: %s; still waiting", self.name, container, reason)
        self._logged_reason = reason

    async def start(self) -> None:
        """Read the pod for the first time. Raise PodNotFoundError if it does not exist."""
        await self._backoff(self.refresh)
        if self.deleted:
            raise PodNotFoundError(f"{self.name} does not exist")

    async def run(self) -> None:
        """Watch until the pod is deleted. `wait_for_change` raises the error of a failed watch."""
        try:
            while not self.deleted:
                await self._backoff(self._watch)
                if not self.deleted:
                    # A proxy may end each watch immediately. Do not send requests without a pause.
                    await asyncio.sleep(self._backoff.first)
        except Exception as error:
            self._watch_error = error
            self._changed.set()

    async def _watch(self) -> None:
        """Run one watch until it ends. Raises an error if the watch is a failed attempt.

        A proxy may end the watch of a pod that does not change. This must not spend the back-off,
        so a watch that ends without an error is not a failed attempt. A watch that breaks is a
        failed attempt only if it sent no event and broke within `stable_after_seconds`.
        """
        if self.resource_version is None:
            await self.refresh()
            self._changed.set()
            if self.deleted:
                return
        query = {
            "watch": "1",
            "fieldSelector": f"metadata.name={self.name.name}",
            "allowWatchBookmarks": "1",
            "resourceVersion": self.resource_version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        pods, _, _ = self.name.path.rpartition("/")
        path = f"{pods}?{urlencode(query)}"
        answered_at, any_event = math.inf, False
        try:
            async with self._server.watch(
                path, "application/json", _WATCH_SECONDS + 10, self._settings.watch_limits
            ) as lines:
                answered_at = time.monotonic()
                async for line in lines:
                    any_event |= self._apply_event(_decode(line))
                    if self.deleted:
                        return
        except ApiError as error:
            if error.status != 410:
                raise
            # 410 Gone: the API server no longer has this resource version. Read the pod again.
            self.resource_version = None
        except (*DECODE_ERRORS, Unreachable) as error:
            lasted = time.monotonic() - answered_at
            if not any_event and lasted < self._settings.stable_after_seconds:
                if isinstance(error, Unreachable):
                    raise
                why = "the watch sent a line that is not JSON"
                raise Unreachable(f"{self.name}: {why}") from None

    def _apply_event(self, event: object) -> bool:
        """Apply a watch event. Return False for a bookmark, else True.

        Raises NotAPodError for a malformed event and ApiError for an error event.
        """
        item = event.get("object") if isinstance(event, dict) else None
        if not isinstance(event, dict) or not isinstance(item, dict):
            raise NotAPodError(f"{self.name}: the answer is not a Pod")
        kind = event.get("type")
        if kind == "ERROR" and isinstance(code := item.get("code"), int):
            raise ApiError(code, str(item.get("message") or ""))
        if kind == "BOOKMARK" and (version := _read_resource_version(item)):
            # A bookmark contains only the resource version.
            self.resource_version = version
            return False
        check_pod(item, self.name)
        self._update(item)
        if kind == "DELETED":
            self.has_final_state = not self.deleted
            self.deleted = True
        self._changed.set()
        return True

    def _update(self, pod: Json) -> None:
        """Store a state of the pod. If its UID is another one, record that the pod was deleted."""
        metadata = pod["metadata"]
        if metadata["uid"] != (self._uid or metadata["uid"]):
            self.deleted = True
            return
        self.pod, self._uid = pod, metadata["uid"]
        self.resource_version = metadata["resourceVersion"]


def _read_resource_version(item: Json) -> str | None:
    metadata = item.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else None


@asynccontextmanager
async def watch_pod(
    server: ApiServer, name: PodName, backoff: Backoff, settings: StreamSettings
) -> AsyncIterator[PodWatch]:
    """Watch a pod while the block runs.

    Raises PodNotFoundError, ApiError and Unreachable.
    """
    watch = PodWatch(server, name, backoff, settings)
    await watch.start()
    task = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
