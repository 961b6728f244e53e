"""The server's side of the worker process: start it, send it the view, run a preview, end it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from webhook.core.images import ImageQuery, LookupRules
from webhook.core.policy.snapshot import Snapshot
from webhook.server.preview.messages import (
    HEADER_BYTES,
    AnswerPiece,
    BodyPart,
    Finished,
    ImagesNeeded,
    KnownImage,
    NamespaceFound,
    NamespaceNeeded,
    Ready,
    Refused,
    RulesForImages,
    Run,
    ToServer,
    ToWorker,
    decode_for_server,
    frame,
    frame_length,
    view_parts,
)

_MODULE = "webhook.server.preview.worker"
_NICENESS = 10
"""The worker's niceness beside a server with niceness 0. It gives the worker a lower priority than
the thread that answers reviews. With the lowest priority, the worker would not start in time beside
other processes with niceness 0."""
_MAX_NICENESS = 19
_BUFFER_BYTES = 256 * 1024
_EXIT_SECONDS = 5.0
"""The time in which a worker must exit after its socket was closed. After this time it is
killed."""


class WorkerError(Exception):
    """The worker ended, or sent an unexpected message."""


@dataclass(frozen=True, slots=True)
class MissingImage:
    """An image whose configuration a preview needs, with the worker's key for it."""

    key: bytes
    query: ImageQuery


@dataclass(slots=True)
class RunResult:
    """The result of one run: an answer, a refusal, or images to look up first."""

    pieces: list[bytes] = field(default_factory=list)
    refusal: str | None = None
    out_of_memory: bool = False
    missing_images: list[MissingImage] = field(default_factory=list)


class PreviewProcess:
    """One worker process. Only one coroutine may use it at a time.

    If a method is cancelled or raises, the state of the worker is unknown. Close it then.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._view: Snapshot | None = None

    @classmethod
    async def start(cls, memory_bytes: int, seconds: float) -> PreviewProcess:
        """Start a worker and wait until it is ready.

        Raises OSError or WorkerError if it cannot be started, and TimeoutError if it is not ready
        within `seconds`.
        """
        ours, theirs = socket.socketpair()
        try:
            # In a thread, not with asyncio.create_subprocess_exec: uvloop forks, and reviews would
            # wait while the kernel copies the server's page tables.
            process = await asyncio.to_thread(_spawn, theirs, memory_bytes)
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_BUFFER_BYTES)
        except BaseException:
            ours.close()
            raise
        worker = cls(process, reader, writer)
        try:
            async with asyncio.timeout(seconds):
                message = await worker._receive()
            if not isinstance(message, Ready):
                raise WorkerError(f"it sent {type(message).__name__} instead of Ready")
        except BaseException:
            await worker.close(kill=True)
            raise
        return worker

    @property
    def pid(self) -> int:
        """The worker's process ID."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the worker's socket is open, as far as the event loop has noticed."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def send_view(self, view: Snapshot) -> None:
        """Send what changed in the cluster since the last call. Raises WorkerError or OSError."""
        for part in view_parts(self._view, view):
            await self._send(part)
        self._view = view

    async def run(
        self,
        run: Run,
        body: Sequence[bytes],
        images: Sequence[KnownImage],
        reserve: Callable[[int], None],
    ) -> RunResult:
        """Preview a text. `reserve` is called with the length of each piece of the answer.

        Raises WorkerError or OSError, and the exceptions of `reserve`.
        """
        for image in images:
            await self._send(image)
        for part in body:
            await self._send(BodyPart(part))
        await self._send(run)
        result = RunResult()
        rules: list[LookupRules] = []
        while True:
            match await self._receive():
                case AnswerPiece(data):
                    reserve(len(data))
                    result.pieces.append(data)
                case NamespaceNeeded(name):
                    namespace = self._view.namespaces.get(name) if self._view else None
                    await self._send(NamespaceFound(namespace))
                case RulesForImages(lookup_rules):
                    rules.append(lookup_rules)
                case ImagesNeeded(needed):
                    result.missing_images += [
                        MissingImage(
                            image.key,
                            ImageQuery(
                                image.image,
                                rules[image.rules],
                                image.architectures,
                                image.namespace,
                            ),
                        )
                        for image in needed
                    ]
                case Refused(detail, out_of_memory):
                    result.refusal, result.out_of_memory = detail, out_of_memory
                    return result
                case Finished():
                    return result
                case message:
                    raise WorkerError(f"it sent {type(message).__name__}")

    async def close(self, *, kill: bool = False) -> int:
        """End the worker and return its exit code. Without `kill` it has time to exit by itself."""
        self._writer.close()
        if kill:
            self._process.kill()
        return await asyncio.to_thread(_reap, self._process)

    async def _send(self, message: ToWorker) -> None:
        self._writer.write(frame(message))
        try:
            await self._writer.drain()
        except ConnectionError:
            raise WorkerError("it ended") from None
        # drain() does not wait while buffers have space. Without this pause, sending all parts
        # would delay reviews.
        await asyncio.sleep(0)

    async def _receive(self) -> ToServer:
        try:
            header = await self._reader.readexactly(HEADER_BYTES)
            return decode_for_server(await self._reader.readexactly(frame_length(header)))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerError("it ended") from None
        except (msgspec.DecodeError, ValueError) as error:
            raise WorkerError(f"it sent an invalid message: {error}") from None


def _spawn(connection: socket.socket, memory_bytes: int) -> subprocess.Popen[bytes]:
    """Start a new interpreter, not a copy of this process. Raises OSError."""
    with connection:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", _MODULE, str(memory_bytes)],
            stdin=connection.fileno(),
            # Output of a library must not appear in the server's log.
            stdout=subprocess.DEVNULL,
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
