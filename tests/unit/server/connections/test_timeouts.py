"""Timeouts of connections over sockets, by a clock that does not depend on the machine's speed."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.http_client import mutate
from tests.support.protocol_server import REVIEW, WHOLE
from tests.support.raw_answers import read_answers
from tests.support.server_fixtures import make_components
from tests.support.stepped_loop import SteppedLoop
from tests.support.stream_server import serve_on
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.server.app import create_app
from webhook.server.components import Components
from webhook.server.connections.protocol import ReviewProtocol
from webhook.server.limits import DEFAULT_LIMITS

HEADER = DEFAULT_LIMITS.header_timeout_seconds
IDLE = DEFAULT_LIMITS.idle_timeout_seconds
WRITE = DEFAULT_LIMITS.write_timeout_seconds


def long_review(length: int) -> bytes:
    """Return a review of a pod whose patch is equally long, because a container is wrapped."""
    long = deepcopy(REVIEW)
    long["request"]["object"]["spec"]["initContainers"][0]["command"].append("y" * length)
    return mutate(json.dumps(long).encode())


LONG_REVIEW = long_review(600_000)
"""The answer has 800 KB, and the operating system buffers a part of it only."""


class Client:
    """A client on the event loop of the server, which reads only when it is told to."""

    def __init__(self, loop: SteppedLoop, connection: socket.socket) -> None:
        self._loop = loop
        self._connection = connection
        self.received = bytearray()
        self.is_closed = False

    async def send(self, data: bytes) -> bool:
        """Send data. Return whether the server has read all of it."""
        unsent = memoryview(data)
        stuck = 0
        while len(unsent) and stuck < 2:
            try:
                unsent = unsent[self._connection.send(unsent) :]
                stuck = 0
            except BlockingIOError:
                stuck += 1
                await self._loop.idle()
        await self._loop.idle()
        return not unsent

    def read(self) -> None:
        """Read what has arrived by now."""
        try:
            while data := self._connection.recv(1024 * 1024):
                self.received += data
            self.is_closed = True
        except BlockingIOError:
            pass
        except ConnectionError:
            self.is_closed = True

    @property
    def answers(self) -> list[int]:
        """The status of each complete answer that was read."""
        found, _ = read_answers(bytes(self.received), 100, to_head=False)
        return [answer.status for answer in found]

    async def is_answered(self) -> bool:
        """Whether the server answers another review."""
        before = len(self.answers)
        assert await self.send(WHOLE)
        self.read()
        return self.answers[before:] == [200]


class Server:
    """A server, and its clients."""

    def __init__(self, loop: SteppedLoop, components: Components, address: Path) -> None:
        self.loop, self.components = loop, components
        self._address = address
        self._sockets: list[socket.socket] = []

    async def connect(self) -> Client:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sockets.append(connection)
        connection.setblocking(False)
        connection.connect(str(self._address))
        await self.loop.idle()
        return Client(self.loop, connection)

    def close(self) -> None:
        for each in self._sockets:
            each.close()


@asynccontextmanager
async def served(source: ManifestsSource) -> AsyncIterator[Server]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SteppedLoop)
    components = make_components(source)
    protocol = partial(ReviewProtocol, server=components.review_server)
    with TemporaryDirectory() as directory:
        address = Path(directory) / "socket"
        async with serve_on(address, create_app(components), protocol, int(IDLE)):
            server = Server(loop, components, address)
            try:
                yield server
            finally:
                server.close()
                await loop.idle()


Run = Callable[[Callable[[Server], Awaitable[None]]], None]


@pytest.fixture
def run(source: ManifestsSource) -> Run:
    """Run a coroutine function with a server on its event loop."""

    def run(test: Callable[[Server], Awaitable[None]]) -> None:
        async def with_server() -> None:
            async with served(source) as server:
                await test(server)

        with asyncio.Runner(loop_factory=SteppedLoop) as runner:
            runner.run(with_server())

    return run


def test_header_timeout_closes_only_the_slow_connections(run: Run) -> None:
    async def scenario(server: Server) -> None:
        unused, between, slow, dripping = [await server.connect() for _ in range(4)]
        assert await between.is_answered()
        for client in (slow, dripping):
            await client.send(b"GET /livez HTTP/1.1\r\nx: y\r\n")
        await server.loop.advance(HEADER - 1)
        await dripping.send(b"x: y\r\n")
        for client in (slow, dripping):
            client.read()
            assert not client.is_closed
        await server.loop.advance(1)
        for client in (slow, dripping):
            client.read()
            assert client.is_closed
        assert await unused.is_answered()
        assert await between.is_answered()

    run(scenario)


def test_idle_timeout_closes_connections_without_requests(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: Server) -> None:
        # The protocol extends its timer by the time since the last bytes.
        for module in ("protocol", "server_clock"):
            name = f"webhook.server.connections.{module}.monotonic"
            monkeypatch.setattr(name, server.loop.time)
        clients = unused, idle, noisy = [await server.connect() for _ in range(3)]
        for client in (idle, noisy):
            assert await client.is_answered()
        await server.loop.advance(IDLE - 1)
        await noisy.send(b"\r\n")
        assert await unused.is_answered()
        await server.loop.advance(2)
        for client in clients:
            client.read()
        assert [client.is_closed for client in clients] == [False, True, True]
        await server.loop.advance(IDLE + 1)
        unused.read()
        assert unused.is_closed

    run(scenario)


def test_client_that_reads_no_answer_is_disconnected(run: Run) -> None:
    async def scenario(server: Server) -> None:
        budget = server.components.review_budget
        client = await server.connect()
        await client.send(LONG_REVIEW)
        assert budget.used_bytes > 700_000
        await server.loop.advance(WRITE - 1)
        assert budget.used_bytes > 700_000
        await server.loop.advance(1)
        assert budget.used_bytes == 0
        client.read()
        assert client.is_closed
        assert 0 < len(client.received) < 700_000

    run(scenario)


def test_client_that_reads_none_of_many_short_answers_is_disconnected(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """The task that waits to write the next answer ends as well."""

    async def scenario(server: Server) -> None:
        client = await server.connect()
        request = long_review(30_000)
        # More answers than the operating system and the write buffer hold. An endless stream would
        # not end: the server discards it until the write timeout.
        for _ in range(50):
            await client.send(request)
        assert server.components.in_flight.requests == 1
        await server.loop.advance(WRITE)
        client.read()
        assert client.is_closed
        assert 0 < len(client.answers) < 50
        assert server.components.in_flight.requests == 0
        assert server.components.review_budget.used_bytes == 0

    run(scenario)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_client_that_reads_slowly_stays_connected(run: Run) -> None:
    """Each read restarts the write timeout, however long the whole answer takes."""

    async def scenario(server: Server) -> None:
        client = await server.connect()
        await client.send(LONG_REVIEW)
        reads = 0
        while not client.answers:
            # What the operating system has buffered. The server then writes as much again.
            client.read()
            await server.loop.advance(WRITE - 1)
            reads += 1
        assert reads * (WRITE - 1) > 2 * WRITE
        assert client.answers == [200]
        assert await client.is_answered()

    run(scenario)
