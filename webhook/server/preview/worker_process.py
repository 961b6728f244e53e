"""The server's side of a worker process: start it, exchange frames with it, end it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable

from webhook.server.preview.frames import HEADER_BYTES, header

_MODULE = "webhook.server.preview.worker"
_NICENESS = 10
"""The worker's niceness beside a server with niceness 0. It gives the worker a lower priority than
the thread that answers reviews. With the lowest priority, the worker would not start in time beside
other processes with niceness 0."""
_MAX_NICENESS = 19
_PIECE_BYTES = 64 * 1024
"""The maximum size of a piece of an answer, which is sent to the client in one step."""
_EXIT_SECONDS = 5.0
"""The time in which a worker must exit after it has closed its output. After this time it is
killed."""


class WorkerError(Exception):
    """The worker ended, or sent what it must not send."""


class WorkerProcess:
    """A worker process, which makes one preview. Only one coroutine may use it at a time."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, memory_bytes: int, cpu_seconds: int) -> WorkerProcess:
        """Start a worker. Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            # In a thread, not with asyncio.create_subprocess_exec: uvloop forks, and reviews would
            # wait 5 ms while the kernel copies the server's page tables.
            process = await asyncio.to_thread(_spawn, theirs, memory_bytes, cpu_seconds)
        except BaseException:
            # If the call was cancelled, the worker still starts, and the closed socket ends it.
            ours.close()
            raise
        return cls(process, *await asyncio.open_unix_connection(sock=ours))

    async def send(self, *pieces: bytes) -> None:
        """Send a frame that consists of these pieces. Raises WorkerError."""
        self._writer.write(header(sum(map(len, pieces))))
        try:
            for piece in pieces:
                self._writer.write(piece)
                await self._writer.drain()
        except ConnectionError:
            raise WorkerError("it ended") from None

    async def receive(self, count_bytes: Callable[[int], None]) -> bytes:
        """Return the next frame. `count_bytes` is called with its length before it is read.

        Raises WorkerError, and the exceptions of `count_bytes`.
        """
        length = await self._receive_length(count_bytes)
        return await self._read(length)

    async def receive_pieces(self, count_bytes: Callable[[int], None]) -> AsyncIterator[bytes]:
        """Yield the next frame in pieces of at most _PIECE_BYTES. Raises as `receive`."""
        length = await self._receive_length(count_bytes)
        while length:
            piece = await self._read(min(length, _PIECE_BYTES))
            length -= len(piece)
            yield piece

    async def end(self, *, kill: bool) -> int:
        """End the worker, and return its exit code. Without `kill`, it has time to end itself."""
        if kill:
            self._process.kill()
        code = await asyncio.shield(asyncio.to_thread(_reap, self._process))
        self._writer.close()
        return code

    async def _receive_length(self, count_bytes: Callable[[int], None]) -> int:
        length = int.from_bytes(await self._read(HEADER_BYTES), "big")
        count_bytes(length)
        return length

    async def _read(self, length: int) -> bytes:
        try:
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerError("it ended") from None


def _spawn(
    connection: socket.socket, memory_bytes: int, cpu_seconds: int
) -> subprocess.Popen[bytes]:
    """Start a new interpreter, not a copy of this process. Raises OSError."""
    with connection:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", _MODULE, str(memory_bytes), str(cpu_seconds)],
            stdin=connection.fileno(),
            stdout=connection.fileno(),
            # Ctrl-C in a terminal then reaches only the server, which ends the worker.
            process_group=0,
        )
    server_niceness = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, process.pid, worker_niceness(server_niceness))
    return process


def worker_niceness(server_niceness: int) -> int:
    """Return the niceness of a worker: above that of the server, unless that is the maximum."""
    return min(max(_NICENESS, server_niceness + 1), _MAX_NICENESS)


def _reap(process: subprocess.Popen[bytes]) -> int:
    """Wait until a process has ended, kill it after a timeout, and return its exit code."""
    try:
        return process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
