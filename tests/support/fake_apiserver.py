"""A fake API server for one pod. A test decides how its watches end. It has no TLS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.kube.cluster import Json
from webhook.client import ApiServer, PodName
from webhook.kubeconfig.access import Access

POD = PodName("ci", "step-1")
_PODS = "/api/v1/namespaces/{namespace}/pods"


def pod(phase: str, state: Json, last: Json | None = None, **spec: Any) -> Json:
    """Return the pod, with one container."""
    container = {"name": "step", "state": state, "lastState": last or {}}
    return {
        "metadata": {"name": POD.name, "namespace": POD.namespace, "uid": "u"},
        "spec": {"containers": [{"name": "step"}], **spec},
        "status": {"phase": phase, "containerStatuses": [container]},
    }


class FakeApiServer:
    """An API server with the history of one pod. `started` creates it."""

    def __init__(self, history: list[Json], idle_watches: int, abort: bool) -> None:
        self.watches = 0
        self.url = ""
        self._history = [
            {**each, "metadata": {**each["metadata"], "resourceVersion": str(version)}}
            for version, each in enumerate(history)
        ]
        self._current = 0
        self._idle_watches = idle_watches
        self._abort = abort
        self.lines: list[bytes] = []
        """The lines that each idle watch sends before it ends."""
        self.unanswered = 0
        """The number of watches, and of requests for a log, that get no response at first."""
        self.logs = 0
        self.keeps_watches_open = False
        """Whether idle watches stay open."""

    @classmethod
    @asynccontextmanager
    async def started(
        cls, *history: Json, idle_watches: int = 0, abort: bool = False
    ) -> AsyncIterator[FakeApiServer]:
        """Run a server whose pod has the states of `history`, initially the first.

        The first `idle_watches` watches end without an event, with a broken connection if
        `abort` is set. The next watch reports the rest of `history`.
        """
        server = cls(list(history), idle_watches, abort)
        app = web.Application()
        app.router.add_get(_PODS, server._watch)
        app.router.add_get(f"{_PODS}/step-1", server._get)
        app.router.add_get(f"{_PODS}/step-1/log", server._log)
        served = TestServer(app)
        await served.start_server(shutdown_timeout=0.1)
        async with served:
            server.url = f"http://127.0.0.1:{served.port}"
            yield server

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ApiServer]:
        """Open a connection of podsettle to the server."""
        access = Access(self.url)
        async with ApiServer(access) as server:
            yield server

    async def _get(self, _request: web.Request) -> web.Response:
        return web.json_response(self._history[self._current])

    async def _log(self, _request: web.Request) -> web.Response:
        self.logs += 1
        if self.logs <= self.unanswered:
            await asyncio.Event().wait()
        return web.Response(text="2026-05-30T10:00:00.000000000Z text\n")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches += 1
        if self.watches <= self.unanswered:
            await asyncio.Event().wait()
        response = web.StreamResponse()
        await response.prepare(request)
        if self.watches <= self._idle_watches:
            for line in self.lines:
                await response.write(line + b"\n")
            if self.keeps_watches_open:
                await asyncio.Event().wait()
            if self._abort and request.transport is not None:
                request.transport.abort()
            return response
        for each in self._history[self._current + 1 :]:
            self._current += 1
            event = {"type": "MODIFIED", "object": each}
            await response.write(json.dumps(event).encode() + b"\n")
        return response
