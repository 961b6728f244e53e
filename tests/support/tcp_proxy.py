"""A TCP connection that a test can cut or let fall silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self


class Cable:
    """Passes bytes between whoever connects to `port` and a server."""

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.accepted = 0
        """How many connections there have been."""
        self.frozen = False
        """Whether connections are accepted and nothing is passed on them."""
        self._far = (host, port)
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def plugged(self) -> AsyncIterator[Self]:
        """Listen while the block runs."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End every connection with a reset."""
        for end in self._ends:
            end.transport.abort()
        self.freeze()

    def freeze(self) -> None:
        """Pass nothing more on any connection that is open; new ones work, unless `frozen`."""
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.frozen:
            self._ends.add(writer)
            return
        far_reader, far_writer = await asyncio.open_connection(*self._far)
        for source, target in ((reader, far_writer), (far_reader, writer)):
            self._ends.add(target)
            task = asyncio.create_task(self._pass(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
            target.write_eof() if target.can_write_eof() else target.close()
        except (OSError, RuntimeError):
            target.transport.abort()
