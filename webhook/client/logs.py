"""Copies a container's log to its end, and resumes after errors.

The kubelet of a new node listens before it has a serving certificate. Until the certificate is
issued, the API server answers requests for logs with 500 and `remote error: tls: internal error`.

The end of a stream does not prove the end of the log. If the API server's connection to the kubelet
breaks, the API server ends its response without an error (`StreamObject` in k8s.io/apiserver drops
the error). A log is therefore complete once the container has terminated and one more request has
returned nothing new.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from urllib.parse import urlencode

from webhook.client.log_cursor import LogCursor
from webhook.client.pod import (
    FINAL,
    GaveUpError,
    Json,
    NotStartedError,
    PodDeletedError,
    PodError,
    PodName,
    check_pod,
    choose_container,
    has_run,
    phase,
    run_id,
    status,
    terminated,
    waiting,
)
from webhook.client.pod_watch import watch_pod
from webhook.client.retry import Backoff, NotYetError, StreamSettings, log
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable

# The kubelet's answers if it does not know the container yet, or no longer.
_UNKNOWN_CONTAINER_STATUSES = (400, 404)


async def copy_logs(
    server: ApiServer,
    name: PodName,
    write: Callable[[bytes], object],
    container: str | None = None,
    *,
    follow: bool = False,
    timestamps: bool = False,
    backoff: Backoff = Backoff(),  # noqa: B008 (it is frozen)
    settings: StreamSettings = StreamSettings(),  # noqa: B008 (it is frozen)
) -> None:
    """Pass a container's log to `write`, byte for byte, in chunks of any length.

    With `follow`, this waits until the container has started, and reads until it has ended and its
    log is complete. Without it, this reads the log that exists now. `timestamps` keeps the
    kubelet's timestamps in front of the lines. If the container restarts, only the log of its
    present run is read.

    Opening a stream is retried with `backoff` after errors of TLS, of the connection and of the API
    server (5xx), and if the kubelet does not know the container yet. A broken stream is resumed.

    Raises PodError, and the errors of `write`. Raises ApiError and Unreachable once `backoff` is
    spent.
    """
    cursor = LogCursor(keep_timestamps=timestamps)
    copy = _Copy(server, name, write, follow, cursor, settings)
    await copy.start(container, backoff)
    try:
        while not copy.done:
            await backoff(copy.read)
    except NotYetError as error:
        raise GaveUpError(str(error)) from None


class _Copy:
    """One call of `copy_logs`."""

    def __init__(
        self,
        server: ApiServer,
        name: PodName,
        write: Callable[[bytes], object],
        follow: bool,
        cursor: LogCursor,
        settings: StreamSettings,
    ) -> None:
        self.done = False
        self._server = server
        self._name = name
        self._write = write
        self._follow = follow
        self._cursor = cursor
        self._settings = settings
        self._container = ""
        self._run = ""
        self._uid = ""
        self._ended = False
        """Whether the container's run had ended before the next stream is opened."""
        self._is_previous_run = False
        """Whether the container has restarted, so that its run is now the previous one."""

    async def start(self, container: str | None, backoff: Backoff) -> None:
        """Choose the container. With `follow`, wait until it has started."""
        async with watch_pod(self._server, self._name, backoff, self._settings) as watch:
            self._container = choose_container(watch.pod, container)
            while not has_run(watch.pod, self._container):
                if not self._follow:
                    why = waiting(watch.pod, self._container) or phase(watch.pod)
                    raise NotStartedError(f"{self._what} has not started: {why}")
                if watch.deleted:
                    raise PodDeletedError(f"{self._what}: the pod was deleted before it started")
                watch.log_waiting_reason(self._container)
                await watch.change()
            self._uid = watch.pod["metadata"]["uid"]
            self._run = run_id(watch.pod, self._container)

    async def read(self) -> None:
        """Read one stream from the cursor. Return if the next one may be opened at once.

        Raises an error if the stream is a failed attempt. Sets `done` if the log is complete.
        """
        started, had_ended = time.monotonic(), self._ended
        following = self._follow and not had_ended
        any_new, error = await self._stream()
        if self._follow:
            pod = await self._read_pod(error)
            if pod is not None:
                self._ended = self._has_run_ended(pod)
            self.done = pod is None or (had_ended and error is None and not any_new)
        else:
            self.done = error is None
        if self.done or any_new or (self._ended and not had_ended):
            return
        # While the container writes nothing, the kubelet sends no response at all. Such a stream is
        # a failed attempt only if the container has ended.
        lasted = time.monotonic() - started
        stable = following and lasted >= self._settings.stable_after_seconds
        if not stable or isinstance(error, ApiError | NotYetError):
            raise error or NotYetError(
                f"the log of {self._what} ended, and the container has no terminated state"
            )

    async def _stream(self) -> tuple[bool, Exception | None]:
        """Read one stream. Return whether it had new bytes, and the error that broke it, if any."""
        query = {"container": self._container, "timestamps": "true"}
        if self._follow and not self._ended:
            query["follow"] = "true"
        if self._is_previous_run:
            query["previous"] = "true"
        if self._cursor.since is not None:
            query["sinceTime"] = self._cursor.since
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
                return any_new, NotYetError(f"the log of {self._what}: {error}")
            return any_new, error
        except Unreachable as error:
            return any_new, error
        return any_new, None

    async def _read_pod(self, stream_error: Exception | None) -> Json | None:
        """Return the pod, or None if it was deleted after its stream ended without an error.

        Raises PodDeletedError if it was deleted and its stream broke.
        """
        try:
            pod = await self._server.request("GET", self._name.path)
        except ApiError as error:
            if error.status != 404:
                raise
            pod = None
        if pod is not None:
            check_pod(pod, self._name)
        if pod is not None and pod["metadata"]["uid"] == self._uid:
            return pod
        if stream_error is not None:
            raise PodDeletedError(
                f"{self._what}: the pod was deleted before its log was read to the end "
                f"({stream_error})"
            )
        if not self._ended:
            log.info("%s: the pod was deleted; its log ended before that", self._what)
        return None

    def _has_run_ended(self, pod: Json) -> bool:
        """Return whether the run has ended. Record whether the container has restarted."""
        run = run_id(pod, self._container)
        self._run = self._run or run
        last = (status(pod, self._container).get("lastState") or {}).get("terminated") or {}
        self._is_previous_run = bool(self._run) and last.get("containerID") == self._run
        if run and run != self._run and not self._is_previous_run:
            raise PodError(f"{self._what}: started again, and the log of the previous run is lost")
        if self._is_previous_run or phase(pod) in FINAL:
            return True
        return terminated(pod, self._container) is not None

    @property
    def _what(self) -> str:
        return f"{self._name}, container {self._container}"
