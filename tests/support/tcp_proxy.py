"""A TCP proxy in front of servers, which a test makes fail.

It runs in a thread of its own, so that both synchronous and asynchronous tests can use it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from tests.support.fake_kubelet import ALERT_INTERNAL_ERROR
from tests.support.waiting import TIMEOUT_SECONDS


class TcpProxy:
    """Passes bytes between the clients of `port` and a server. `to` makes one.

    With several targets, it takes them in turn, as the address of a Service does.
    """

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.accepted = 0
        """How many connections there have been."""
        self.frozen = False
        """Whether connections are accepted and nothing is passed on them."""
        self.alerts = False
        """Whether each ClientHello is answered with the TLS alert internal_error."""
        self.targets = [(host, port)]
        """The servers for new connections."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening = threading.Event()
        self._end = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop

    @classmethod
    @contextmanager
    def to(cls, host: str, port: int) -> Iterator[Self]:
        """Listen while the block runs."""
        proxy = cls(host, port)
        thread = threading.Thread(target=lambda: asyncio.run(proxy._run()), daemon=True)
        thread.start()
        assert proxy._listening.wait(TIMEOUT_SECONDS)
        try:
            yield proxy
        finally:
            proxy._call(proxy._end.set)
            thread.join(TIMEOUT_SECONDS)

    def cut(self) -> None:
        """End every connection with a reset."""
        self._call(self._cut)

    def freeze(self) -> None:
        """Pass nothing more on any connection that is open; new ones work, unless `frozen`."""
        self._call(self._freeze)

    def _call(self, function: Callable[[], None]) -> None:
        """Call a function in the thread of the proxy, and wait for its end."""

        async def call() -> None:
            function()

        asyncio.run_coroutine_threadsafe(call(), self._loop).result(TIMEOUT_SECONDS)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._end.wait()
        server.close()
        self._cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._freeze()

    def _freeze(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        if self.frozen:
            return
        if self.alerts:
            await self._alert(reader, writer)
            return
        host, port = self.targets[self.accepted % len(self.targets)]
        try:
            target_reader, target_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(target_writer)
        pairs = ((reader, target_writer), (target_reader, writer))
        tasks = [asyncio.create_task(self._pass(*pair)) for pair in pairs]
        self._tasks.update(tasks)
        await asyncio.wait(tasks)
        self._tasks.difference_update(tasks)
        if not any(task.cancelled() for task in tasks):  # It is not frozen.
            for each in (writer, target_writer):
                each.close()
                self._writers.discard(each)

    async def _alert(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Read the whole hello: closing a socket with unread bytes resets the connection.
        header = await reader.readexactly(5)
        await reader.readexactly(int.from_bytes(header[3:5]))
        writer.write(ALERT_INTERNAL_ERROR)
        writer.close()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
            sink.write_eof() if sink.can_write_eof() else sink.close()
        except (OSError, RuntimeError):
            sink.transport.abort()
