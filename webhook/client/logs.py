"""Functions that copy a container's log to its end, and resume after errors.

The kubelet of a new node listens before it has a serving certificate. Until the certificate is
issued, the API server answers requests for logs with 500 and `remote error: tls: internal error`.

The end of a stream does not prove the end of the log. If the API server's connection to the kubelet
breaks, the API server ends its response without an error (`StreamObject` in k8s.io/apiserver drops
the error). A log is therefore complete only if the container has terminated and one more request
has returned no new bytes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from urllib.parse import urlencode

from webhook.client.container_state import (
    FINAL_PHASES,
    GaveUpError,
    NoPreviousRunError,
    NotStartedError,
    PodDeletedError,
    PodError,
    PodName,
    choose_container,
    container_status,
    has_started,
    last_run_id,
    pod_phase,
    terminated_state,
    waiting_reason,
)
from webhook.client.log_cursor import LogCursor
from webhook.client.pod_watch import read_pod, watch_pod
from webhook.client.retry import Backoff, NotYetError, StreamSettings, log
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.core.types import Json

# The kubelet answers with these statuses before it knows the container, and after it has removed
# the container.
_UNKNOWN_CONTAINER_STATUSES = (400, 404)


async def copy_logs(
    server: ApiServer,
    name: PodName,
    write: Callable[[bytes], object],
    container: str | None = None,
    *,
    follow: bool = False,
    timestamps: bool = False,
    tail_lines: int | None = None,
    since_seconds: float | None = None,
    previous: bool = False,
    backoff: Backoff = Backoff(),  # noqa: B008 (it is frozen)
    settings: StreamSettings = StreamSettings(),  # noqa: B008 (it is frozen)
) -> None:
    """Pass a container's log to `write`, byte for byte, in chunks of any length.

    With `follow`, this waits until the container has started, and reads until it has ended and its
    log is complete. Without `follow`, this reads the log that exists now. `timestamps` keeps the
    kubelet's timestamps in front of the lines. If the container restarts, only the log of its
    current run is read, or with `previous` that of the run before it.

    `tail_lines` begins so many lines before the end, and `since_seconds` with the first line that
    is at most so old.

    Opening a stream is retried with `backoff` after errors of TLS, of the connection and of the API
    server (5xx), and if the kubelet does not know the container yet. A broken stream is resumed.

    Raises PodError, and the errors of `write`. Raises ApiError and Unreachable once `backoff` is
    spent.
    """
    is_part = tail_lines is not None or since_seconds is not None
    cursor = LogCursor(keep_timestamps=timestamps, from_first=is_part)
    copy = _Copy(server, name, write, follow, tail_lines, since_seconds, previous, settings, cursor)
    await copy.start(container, backoff)
    try:
        while not copy.is_complete:
            await backoff(copy.read)
    except NotYetError as error:
        raise GaveUpError(str(error)) from None


@dataclass
class _Copy:
    """One call of `copy_logs`, by its parameters."""

    server: ApiServer
    name: PodName
    write: Callable[[bytes], object]
    follow: bool
    tail_lines: int | None
    since_seconds: float | None
    previous: bool
    settings: StreamSettings
    cursor: LogCursor
    is_complete: bool = False
    opened_at: float = field(default_factory=time.monotonic)
    container: str = ""
    run_id: str = ""
    uid: str = ""
    run_ended: bool = False
    """Whether the container's run ended before the next stream is opened."""

    def __post_init__(self) -> None:
        self.is_previous_run = self.previous
        """Whether the container has restarted. The log of the run then needs `previous=true`."""

    async def start(self, container: str | None, backoff: Backoff) -> None:
        """Choose the container. With `follow`, wait until it has started."""
        async with watch_pod(self.server, self.name, backoff, self.settings) as watch:
            self.container = choose_container(watch.pod, container)
            if self.previous:
                if self._last_run(watch.pod) is None:
                    raise NoPreviousRunError(f"{self._title} has no previous run")
                return
            while not has_started(watch.pod, self.container):
                if not self.follow:
                    reason = waiting_reason(watch.pod, self.container) or pod_phase(watch.pod)
                    raise NotStartedError(f"{self._title} has not started: {reason}")
                if watch.deleted:
                    raise PodDeletedError(f"{self._title}: the pod was deleted before it started")
                watch.log_waiting_reason(self.container)
                await watch.wait_for_change()
            self.uid = watch.pod["metadata"]["uid"]
            self.run_id = last_run_id(watch.pod, self.container)
            self.opened_at = time.monotonic()

    async def read(self) -> None:
        """Read one stream from the cursor. Return if the next stream may be opened immediately.

        Raises an error if the next stream needs a pause. Sets `is_complete` if the log is complete.
        """
        started_at, had_ended = time.monotonic(), self.run_ended
        following = self.follow and not had_ended
        any_new, error = await self._read_stream()
        if self.follow:
            pod = await self._read_pod(error)
            if pod is not None:
                self.run_ended = self._has_run_ended(pod)
            self.is_complete = pod is None or (had_ended and error is None and not any_new)
        else:
            self.is_complete = error is None
        if self.is_complete or any_new or (self.run_ended and not had_ended):
            return
        # While the container writes nothing, the kubelet sends no response. A stream that was open
        # for a while without a byte is therefore not a failed attempt.
        lasted = time.monotonic() - started_at
        stable = following and lasted >= self.settings.stable_after_seconds
        if not stable or isinstance(error, ApiError | NotYetError):
            raise error or NotYetError(
                f"the log of {self._title} ended, and the container has no terminated state"
            )

    async def _read_stream(self) -> tuple[bool, Exception | None]:
        """Read one stream. Return whether it had new bytes, and the error that broke it or None."""
        query = {"container": self.container, "timestamps": "true"}
        if self.follow and not self.run_ended:
            query["follow"] = "true"
        if self.is_previous_run:
            query["previous"] = "true"
        if self.cursor.since is not None:
            query["sinceTime"] = self.cursor.since
        else:
            query |= self._selected()
        any_new = False
        self.cursor.rewind()
        path = f"{self.name.path}/log?{urlencode(query)}"
        silence = self.settings.log_silence_seconds
        try:
            async with aclosing(self.server.stream(path, silence)) as chunks:
                async for chunk in chunks:
                    if new := self.cursor.feed(chunk):
                        any_new = True
                        self.write(new)
        except ApiError as error:
            if error.status in _UNKNOWN_CONTAINER_STATUSES:
                return any_new, NotYetError(f"the log of {self._title}: {error}")
            return any_new, error
        except Unreachable as error:
            return any_new, error
        return any_new, None

    def _selected(self) -> dict[str, str]:
        """Return the parameters that select a part of a log of which nothing was read yet."""
        query = {}
        if self.tail_lines is not None:
            query["tailLines"] = str(self.tail_lines)
        if self.since_seconds is not None:
            # The time that has passed since the first request counts too.
            passed = int(time.monotonic() - self.opened_at)
            query["sinceSeconds"] = str(math.ceil(self.since_seconds) + passed or 1)
        return query

    async def _read_pod(self, stream_error: Exception | None) -> Json | None:
        """Return the pod, or None if it was deleted and its stream ended without an error.

        Raises PodDeletedError if the pod was deleted and its stream broke.
        """
        pod = await read_pod(self.server, self.name)
        if pod is not None and pod["metadata"]["uid"] == self.uid:
            return pod
        if stream_error is not None:
            raise PodDeletedError(
                f"{self._title}: the pod was deleted before its log was read to the end "
                f"({stream_error})"
            )
        if not self.run_ended:
            log.info("%s: the pod was deleted; its log ended before that", self._title)
        return None

    def _has_run_ended(self, pod: Json) -> bool:
        """Return whether the run has ended. Update `is_previous_run`.

        Raises PodError if the container has restarted more than once, so its log is lost.
        """
        run = last_run_id(pod, self.container)
        self.run_id = self.run_id or run
        last = self._last_run(pod) or {}
        self.is_previous_run = bool(self.run_id) and last.get("containerID") == self.run_id
        if run and run != self.run_id and not self.is_previous_run:
            raise PodError(f"{self._title}: started again, and the log of the previous run is lost")
        if self.is_previous_run or pod_phase(pod) in FINAL_PHASES:
            return True
        return terminated_state(pod, self.container) is not None

    def _last_run(self, pod: Json) -> Json | None:
        """Return the terminated state of the run before the last restart, or None."""
        last = container_status(pod, self.container).get("lastState") or {}
        terminated: Json | None = last.get("terminated")
        return terminated

    @property
    def _title(self) -> str:
        return f"{self.name}, container {self.container}"
