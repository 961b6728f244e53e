"""The worker process of previews, as the server sees it: started, told the view, run and ended."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from webhook.cluster.snapshot import Snapshot
from webhook.core.images import ImageQuery, LookupRules
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
    RulesNeeded,
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
"""Below the thread that answers reviews, in a server of an ordinary priority. Not the lowest:
beside other work of priority 0 a worker would not even start in time."""
_MAX_NICENESS = 19
_BUFFER_BYTES = 256 * 1024
_EXIT_SECONDS = 5.0
"""For a worker whose socket was closed; it ends at once, and is killed after that."""


class WorkerError(Exception):
    """A worker that ended, or that sent what it never sends."""


@dataclass(frozen=True, slots=True)
class Needed:
    """An image that a preview needs, with the key by which the worker knows it."""

    key: bytes
    query: ImageQuery


@dataclass(slots=True)
class RunResult:
    """What came of one run: an answer, a refusal, or images to look up first."""

    pieces: list[bytes] = field(default_factory=list)
    refusal: str | None = None
    out_of_memory: bool = False
    needed: list[Needed] = field(default_factory=list)


class PreviewProcess:
    """One worker. Every coroutine here is for one caller at a time.

    Where one of them is cancelled or raises, the worker's state is not known: close it.
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
        """A worker that is ready. Raises OSError or WorkerError where it cannot be started.

        TimeoutError, an OSError, where it was not ready after so many seconds.
        """
        ours, theirs = socket.socketpair()
        try:
            # In a thread, and not by the event loop's own means: uvloop forks, which copies the
            # page tables of the server while no review is answered.
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
                raise WorkerError(f"it sent {type(message).__name__} first")
        except BaseException:
            await worker.close(kill=True)
            raise
        return worker

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not closed its socket, as far as the loop has noticed."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def tell_view(self, view: Snapshot) -> None:
        """Tell it what changed in the cluster, in parts. Raises WorkerError or OSError."""
        for part in view_parts(self._view, view):
            await self._send(part)
        self._view = view

    async def run(
        self,
        run: Run,
        body: Sequence[bytes],
        images: Sequence[KnownImage],
        take: Callable[[int], None],
    ) -> RunResult:
        """Preview a text with the view that it was told. `take` is called for bytes of the answer.

        Raises WorkerError or OSError, and what `take` raises.
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
                    take(len(data))
                    result.pieces.append(data)
                case NamespaceNeeded(name):
                    known = self._view.namespaces.get(name) if self._view else None
                    await self._send(NamespaceFound(known))
                case RulesNeeded(found):
                    rules.append(found)
                case ImagesNeeded(needed):
                    result.needed += [
                        Needed(
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
        """End it; without `kill` it may finish what it says. Returns its exit code."""
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
        # drain() goes on at once while buffers have space, and reviews would wait for all parts.
        await asyncio.sleep(0)

    async def _receive(self) -> ToServer:
        try:
            header = await self._reader.readexactly(HEADER_BYTES)
            return decode_for_server(await self._reader.readexactly(frame_length(header)))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerError("it ended") from None
        except (msgspec.DecodeError, ValueError) as error:
            raise WorkerError(f"it sent what cannot be read: {error}") from None


def _spawn(connection: socket.socket, memory_bytes: int) -> subprocess.Popen[bytes]:
    """A new interpreter, not a copy of this process. Raises OSError."""
    with connection:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", _MODULE, str(memory_bytes)],
            stdin=connection.fileno(),
            # What a library might print must not get into the log, in the server's name.
            stdout=subprocess.DEVNULL,
            # A terminal's Ctrl-C is for the server, which ends it.
            process_group=0,
        )
    own = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, process.pid, niceness_beside(own))
    return process


def niceness_beside(own: int) -> int:
    """The niceness of a worker whose server has this one: a process may not raise a priority."""
    return min(max(_NICENESS, own + 1), _MAX_NICENESS)


def _reap(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
