"""A container's log, read to its end in spite of what breaks on the way.

The kubelet of a new node listens before it has a serving certificate: until that is issued, the API
server cannot read logs there, and says 500 with `remote error: tls: internal error`.

A stream that ends says nothing by that: the API server ends its answer in good order also when
its own connection to the kubelet broke (`StreamObject` in k8s.io/apiserver drops the error). So a
log is at its end when the container has terminated and a further look has brought nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from urllib.parse import urlencode

from webhook.client.log_cursor import Position
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
from webhook.client.pod_watch import keep_in_sight
from webhook.client.retry import STOOD, Backoff, NotYetError, log
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable

_SILENCE = 120.0
"""Seconds without a byte after which a stream is opened anew: its connection may be dead."""

_ABOUT_THE_CONTAINER = (400, 404)
"""The kubelet's answers where it does not have the container (yet, or any more)."""


async def copy_logs(
    server: ApiServer,
    name: PodName,
    write: Callable[[bytes], object],
    container: str | None = None,
    *,
    follow: bool = False,
    timestamps: bool = False,
    backoff: Backoff = Backoff(),  # noqa: B008 (it is frozen)
) -> None:
    """Pass the container's log to `write`, in pieces that need not be lines, byte for byte.

    `follow` waits until the container has started, and goes on until it has ended and all of its
    log has been read; else what is there now. `timestamps` leaves the kubelet's stamps in front of
    the lines. Of a container that starts again, the run that is there at first is read.

    Opening the stream is tried again by `backoff`: on what is wrong with TLS, the connection, or
    the API server (5xx), and where the kubelet does not know the container yet. A stream that
    breaks is continued where it broke.

    Raises PodError, and ApiError and Unreachable where `backoff` is spent; what `write` raises.
    """
    copy = _Copy(server, name, write, follow, Position(keep_stamps=timestamps))
    await copy.begin(container, backoff)
    try:
        while not copy.done:
            await backoff(copy.read)
    except NotYetError as error:
        raise GaveUpError(str(error)) from None


class _Copy:
    def __init__(
        self,
        server: ApiServer,
        name: PodName,
        write: Callable[[bytes], object],
        follow: bool,
        position: Position,
    ) -> None:
        self.done = False
        self._server = server
        self._name = name
        self._write = write
        self._follow = follow
        self._position = position
        self._container = ""
        self._run = ""
        self._uid = ""
        self._over = False
        """Whether the container had ended when the stream was opened."""
        self._previous = False
        """Whether another run has begun since, so that this one is the previous."""

    async def begin(self, container: str | None, backoff: Backoff) -> None:
        """Find the container, and wait until it has started where that is wanted."""
        async with keep_in_sight(self._server, self._name, backoff) as sight:
            self._container = choose_container(sight.pod, container)
            while not has_run(sight.pod, self._container):
                if not self._follow:
                    why = waiting(sight.pod, self._container) or phase(sight.pod)
                    raise NotStartedError(f"{self._what} has not started: {why}")
                if sight.gone:
                    raise PodDeletedError(f"{self._what}: the pod was deleted before it started")
                sight.say_why(self._container)
                await sight.change()
            self._uid = sight.pod["metadata"]["uid"]
            self._run = run_id(sight.pod, self._container)

    async def read(self) -> None:
        """One stream, from where the last one ended. Returns where another may follow at once."""
        begun, was_over = time.monotonic(), self._over
        following = self._follow and not was_over
        any_news, broken = await self._stream()
        if self._follow:
            pod = await self._look(broken)
            if pod is not None:
                self._over = self._is_over(pod)
            self.done = pod is None or (was_over and broken is None and not any_news)
        else:
            self.done = broken is None
        if self.done or any_news or (self._over and not was_over):
            return
        # A container that writes nothing is silent, too: the kubelet does not even begin to answer.
        # Where there is nothing to wait for, silence is a failure.
        quiet = following and time.monotonic() - begun >= STOOD
        if not quiet or isinstance(broken, ApiError | NotYetError):
            raise broken or NotYetError(
                f"the log of {self._what} ended, and the container has no terminated state"
            )

    async def _stream(self) -> tuple[bool, Exception | None]:
        """Whether there was anything new, and what broke the stream, as far as that shows."""
        query = {"container": self._container, "timestamps": "true"}
        if self._follow and not self._over:
            query["follow"] = "true"
        if self._previous:
            query["previous"] = "true"
        if self._position.since is not None:
            query["sinceTime"] = self._position.since
        any_news = False
        self._position.rewind()
        path = f"{self._name.path}/log?{urlencode(query)}"
        try:
            async with aclosing(self._server.stream(path, _SILENCE)) as chunks:
                async for chunk in chunks:
                    if new := self._position.feed(chunk):
                        any_news = True
                        self._write(new)
        except ApiError as error:
            if error.status in _ABOUT_THE_CONTAINER:
                return any_news, NotYetError(f"the log of {self._what}: {error}")
            return any_news, error
        except Unreachable as error:
            return any_news, error
        return any_news, None

    async def _look(self, broken: Exception | None) -> Json | None:
        """The pod as it is now, or None for one that is gone, and whose stream ended well."""
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
        if broken is not None:
            raise PodDeletedError(
                f"{self._what}: the pod was deleted before its log was read to the end ({broken})"
            )
        if not self._over:
            log.info("%s: the pod was deleted; its log ended before", self._what)
        return None

    def _is_over(self, pod: Json) -> bool:
        """Whether the run that is read has ended; notes whether another has taken its place."""
        run = run_id(pod, self._container)
        self._run = self._run or run
        last = (status(pod, self._container).get("lastState") or {}).get("terminated") or {}
        self._previous = bool(self._run) and last.get("containerID") == self._run
        if run and run != self._run and not self._previous:
            raise PodError(f"{self._what}: started again, and the log of the run before is gone")
        return self._previous or terminated(pod, self._container) is not None or phase(pod) in FINAL

    @property
    def _what(self) -> str:
        return f"{self._name}, container {self._container}"
