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
from typing import NamedTuple
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
from webhook.client.retry import Backoff, NotYetError, log
from webhook.client.stream_settings import StreamSettings
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
    selection = _Selection(container, tail_lines, since_seconds, previous)
    copy = _Copy(server, name, write, selection, follow, cursor, settings)
    await copy.start(backoff)
    try:
        while not copy.is_complete:
            await backoff(copy.read)
    except NotYetError as error:
        raise GaveUpError(str(error)) from None


class _Selection(NamedTuple):
    """The part of a pod's logs to read."""

    container: str | None
    tail_lines: int | None
    since_seconds: float | None
    previous: bool


class _Copy:
    """One call of `copy_logs`."""

    def __init__(
        self,
        server: ApiServer,
        name: PodName,
        write: Callable[[bytes], object],
        selection: _Selection,
        follow: bool,
        cursor: LogCursor,
        settings: StreamSettings,
    ) -> None:
        self.is_complete = False
        self._server = server
        self._name = name
        self._write = write
        self._selection = selection
        self._opened_at = time.monotonic()
        self._follow = follow
        self._cursor = cursor
        self._settings = settings
        self._container = ""
        self._run_id = ""
        self._uid = ""
        self._run_ended = False
        """Whether the container's run ended before the next stream is opened."""
        self._is_previous_run = selection.previous
        """Whether the container has restarted. The log of the run then needs `previous=true`."""

    async def start(self, backoff: Backoff) -> None:
        """Choose the container. With `follow`, wait until it has started."""
        async with watch_pod(self._server, self._name, backoff, self._settings) as watch:
            self._container = choose_container(watch.pod, self._selection.container)
            if self._selection.previous:
                if self._last_run(watch.pod) is None:
                    raise NoPreviousRunError(f"{self._title} has no previous run")
                return
            while not has_started(watch.pod, self._container):
                if not self._follow:
                    reason = waiting_reason(watch.pod, self._container) or pod_phase(watch.pod)
                    raise NotStartedError(f"{self._title} has not started: {reason}")
                if watch.deleted:
                    raise PodDeletedError(f"{self._title}: the pod was deleted before it started")
                watch.log_waiting_reason(self._container)
                await watch.wait_for_change()
            self._uid = watch.pod["metadata"]["uid"]
            self._run_id = last_run_id(watch.pod, self._container)
            self._opened_at = time.monotonic()

    async def read(self) -> None:
        """Read one stream from the cursor. Return if the next stream may be opened immediately.

        Raises an error if the next stream needs a pause. Sets `is_complete` if the log is complete.
        """
        started_at, had_ended = time.monotonic(), self._run_ended
        following = self._follow and not had_ended
        any_new, error = await self._read_stream()
        if self._follow:
            pod = await self._read_pod(error)
            if pod is not None:
                self._run_ended = self._has_run_ended(pod)
            self.is_complete = pod is None or (had_ended and error is None and not any_new)
        else:
            self.is_complete = error is None
        if self.is_complete or any_new or (self._run_ended and not had_ended):
            return
        # While the container writes nothing, the kubelet sends no response. A stream that was open
        # for a while without a byte is therefore not a failed attempt.
        lasted = time.monotonic() - started_at
        stable = following and lasted >= self._settings.stable_after_seconds
        if not stable or isinstance(error, ApiError | NotYetError):
            raise error or NotYetError(
                f"the log of {self._title} ended, and the container has no terminated state"
            )

    async def _read_stream(self) -> tuple[bool, Exception | None]:
        """Read one stream. Return whether it had new bytes, and the error that broke it or None."""
        query = {"container": self._container, "timestamps": "true"}
        if self._follow and not self._run_ended:
            query["follow"] = "true"
        if self._is_previous_run:
            query["previous"] = "true"
        if self._cursor.since is not None:
            query["sinceTime"] = self._cursor.since
        else:
            query |= self._selected()
        any_new = False
        self._cursor.rewind()
        path = f"{self._name.path}/log?{urlencode(query)}"
        silence = self._settings.log_silence_seconds
        try:
            async with aclosing(self._server.stream(path, silence)) as chunks:
                async for chunk in chunks:
                    if new := self._cursor.feed(chunk):
                        any_new = True
                        self._write(new)
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
        if self._selection.tail_lines is not None:
            query["tailLines"] = str(self._selection.tail_lines)
        if self._selection.since_seconds is not None:
            # The time that has passed since the first request counts too.
            passed = int(time.monotonic() - self._opened_at)
            query["sinceSeconds"] = str(math.ceil(self._selection.since_seconds) + passed or 1)
        return query

    async def _read_pod(self, stream_error: Exception | None) -> Json | None:
        """Return the pod, or None if it was deleted and its stream ended without an error.

        Raises PodDeletedError if the pod was deleted and its stream broke.
        """
        pod = await read_pod(self._server, self._name)
        if pod is not None and pod["metadata"]["uid"] == self._uid:
            return pod
        if stream_error is not None:
            raise PodDeletedError(
                f"{self._title}: the pod was deleted before its log was read to the end "
                f"({stream_error})"
            )
        if not self._run_ended:
            log.info("%s: the pod was deleted; its log ended before that", self._title)
        return None

    def _has_run_ended(self, pod: Json) -> bool:
        """Return whether the run has ended. Update `_is_previous_run`.

        Raises PodError if the container has restarted more than once, so its log is lost.
        """
        run = last_run_id(pod, self._container)
        self._run_id = self._run_id or run
        last = self._last_run(pod) or {}
        self._is_previous_run = bool(self._run_id) and last.get("containerID") == self._run_id
        if run and run != self._run_id and not self._is_previous_run:
            raise PodError(f"{self._title}: started again, and the log of the previous run is lost")
        if self._is_previous_run or pod_phase(pod) in FINAL_PHASES:
            return True
        return terminated_state(pod, self._container) is not None

    def _last_run(self, pod: Json) -> Json | None:
        """Return the terminated state of the run before the last restart, or None."""
        last = container_status(pod, self._container).get("lastState") or {}
        terminated: Json | None = last.get("terminated")
        return terminated

    @property
    def _title(self) -> str:
        return f"{self._name}, container {self._container}"
