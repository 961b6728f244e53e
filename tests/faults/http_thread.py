"""An aiohttp server with TLS, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import trustme
from aiohttp import web

from tests.support.kube.cluster import LOOPBACK
from tests.support.process import free_port
from tests.support.waiting import TIMEOUT_SECONDS

T = TypeVar("T")


class HttpThread:
    """A server with one handler for every request. `serving` starts it."""

    def __init__(self, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
        self.ca = trustme.CA()
        # Not one that Linux gives to clients: one of them would get it while it is refused.
        self.port = free_port()
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", handler)
        # A request that hangs must not outlive its client.
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        self._loop: asyncio.AbstractEventLoop
        self._listening, self._over = threading.Event(), asyncio.Event()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Listen on the loopback address while the block runs."""
        thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        thread.start()
        assert self._listening.wait(TIMEOUT_SECONDS)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            thread.join(TIMEOUT_SECONDS)

    def listen(self) -> None:
        """Listen again, at the same port."""
        self.run(self._listen())

    def refuse(self) -> None:
        """Refuse connections until `listen` is called. Open connections stay."""
        for site in list(self._runner.sites):
            self.run(site.stop())

    def run(self, work: Awaitable[T]) -> T:
        """Run a coroutine in the thread, and return its result."""

        async def awaited() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(TIMEOUT_SECONDS)

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the thread."""
        self._loop.call_soon_threadsafe(function)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._runner.setup()
        await self._listen()
        self._listening.set()
        await self._over.wait()
        await self._runner.cleanup()

    async def _listen(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(LOOPBACK).configure_cert(context)
        site = web.TCPSite(self._runner, LOOPBACK, self.port, ssl_context=context)
        await site.start()
