"""What `connections/protocol.py` and `run.py` use of uvicorn beyond its settings.

`make test-lowest` runs these tests with the lowest permitted release, and all other targets with
the highest one. If one of them fails, uvicorn has changed something that podsettle relies on.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.support.memory_server import Recorder
from tests.support.memory_transport import MemoryTransport

KEYWORDS = {"config", "server_state", "app_state", "_loop"}


class Connection(asyncio.Protocol):
    """A protocol that registers itself as uvicorn's own ones do."""

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.shutdowns = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.given["server_state"].connections.add(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.given["server_state"].connections.discard(self)

    def shutdown(self) -> None:
        self.shutdowns += 1


async def lifespan_app(scope: Scope, receive: Receive, send: Send) -> None:
    assert scope["type"] == "lifespan"
    scope["state"]["from"] = "lifespan"
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})


class Serving:
    """A uvicorn server that runs, and the connections that it has accepted."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self._address = self.listener.getsockname()
        self._clients: list[socket.socket] = []
        config = uvicorn.Config(
            lifespan_app,
            http=self._accept,  # type: ignore[arg-type]
            log_config=None,
            ws="none",
        )
        self.server = uvicorn.Server(config)
        self.running: asyncio.Task[None]

    def _accept(self, **given: Any) -> Connection:
        self.connections.append(Connection(**given))
        return self.connections[-1]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                assert not self.running.done()
                await asyncio.sleep(0.01)

    def close(self) -> None:
        for client in self._clients:
            client.close()

    async def connect(self) -> Connection:
        self._clients.append(socket.create_connection(self._address))
        await self.until(lambda: self.connections and hasattr(self.connections[-1], "transport"))
        return self.connections[-1]


@asynccontextmanager
async def serving() -> AsyncIterator[Serving]:
    found = Serving()
    found.running = asyncio.create_task(found.server.serve(sockets=[found.listener]))
    try:
        await found.until(lambda: found.server.started)
        yield found
    finally:
        found.server.should_exit = found.server.force_exit = True
        async with asyncio.timeout(30):
            await found.running
        found.close()


# Server


async def test_http_setting_takes_a_callable_with_four_keywords() -> None:
    async with serving() as found:
        connection = await found.connect()
        assert set(connection.given) == KEYWORDS
        assert connection.given["config"] is found.server.config
        assert connection.given["app_state"] == {"from": "lifespan"}
        state = connection.given["server_state"]
        assert isinstance(state.connections, set)
        assert isinstance(state.tasks, set)
        connection.transport.abort()


async def test_exit_asks_connections_to_shut_down_and_waits_for_them() -> None:
    async with serving() as found:
        connection = await found.connect()
        assert connection.shutdowns == 0
        found.server.should_exit = True
        await found.until(lambda: connection.shutdowns == 1)
        assert found.listener.fileno() == -1
        assert not found.running.done()
        connection.transport.close()
        async with asyncio.timeout(30):
            await found.running
        assert connection.shutdowns == 1


async def test_exit_waits_for_tasks() -> None:
    async with serving() as found:
        connection = await found.connect()
        tasks = connection.given["server_state"].tasks
        go_on = asyncio.Event()
        task = asyncio.create_task(go_on.wait())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        found.server.should_exit = True
        await found.until(lambda: connection.shutdowns == 1)
        connection.transport.close()
        await found.until(lambda: not connection.given["server_state"].connections)
        assert not found.running.done()
        go_on.set()
        async with asyncio.timeout(30):
            await found.running


async def test_forced_exit_waits_for_neither_connections_nor_tasks() -> None:
    # Both belong to no socket of the server, as after `Handshakes`. From Python 3.12 on, asyncio
    # itself waits for connections that its server has accepted.
    async with serving() as found:
        state = found.server.server_state
        connection = Connection(server_state=state)
        state.connections.add(connection)  # type: ignore[arg-type]
        task = asyncio.create_task(asyncio.Event().wait())
        state.tasks.add(task)  # type: ignore[arg-type]
        found.server.should_exit = found.server.force_exit = True
        async with asyncio.timeout(30):
            await found.running
        assert connection.shutdowns == 1
        task.cancel()


async def test_signal_handlers_are_set_before_serve_first_waits() -> None:
    before = signal.getsignal(signal.SIGTERM)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(lifespan_app, log_config=None, ws="none"))
    first: list[object] = []

    async def observe() -> None:
        first.append(signal.getsignal(signal.SIGTERM))
        server.should_exit = True

    task = asyncio.create_task(observe())
    async with asyncio.timeout(30):
        await server.serve(sockets=[listener])
        await task
    assert first == [server.handle_exit]
    assert signal.getsignal(signal.SIGTERM) == before


# The inner protocol


class Inner:
    """uvicorn's protocol on a transport that has only the methods of podsettle's."""

    def __init__(self) -> None:
        self.app = Recorder()
        config = uvicorn.Config(self.app, log_config=None, lifespan="off", ws="none")
        config.load()
        self.state = uvicorn.Server(config).server_state
        self.protocol = HttpToolsProtocol(
            config=config,
            server_state=self.state,
            app_state={"key": "value"},
            _loop=asyncio.get_running_loop(),
        )
        self.transport = MemoryTransport(self.protocol)

    async def send(self, data: bytes) -> None:
        self.protocol.data_received(data)
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def inner(monkeypatch: pytest.MonkeyPatch) -> Inner:
    # uvicorn does not use these methods, which the transport of the inner protocol does not have.
    for name in ("abort", "set_write_buffer_limits"):
        monkeypatch.delattr(MemoryTransport, name)
    return Inner()


def test_inner_protocol_is_a_protocol_with_the_same_keywords() -> None:
    assert issubclass(HttpToolsProtocol, asyncio.Protocol)
    parameters = inspect.signature(HttpToolsProtocol).parameters
    assert set(parameters) == KEYWORDS


async def test_inner_protocol_closes_after_an_answer_with_connection_close(inner: Inner) -> None:
    assert inner.state.connections == {inner.protocol}
    await inner.send(b"POST /x HTTP/1.1\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbo")
    assert not inner.transport.sent
    assert len(inner.state.tasks) == 1
    await inner.send(b"dy")
    head, _, body = bytes(inner.transport.sent).partition(b"\r\n\r\n")
    assert body == b"/x:body"
    assert b"\r\nconnection: close" in head.lower()
    assert inner.transport.closed
    inner.protocol.connection_lost(None)
    assert not inner.state.connections
    assert not inner.state.tasks
    assert inner.app.scopes[0]["state"] == {"key": "value"}


async def test_first_connection_header_with_close_prevails(inner: Inner) -> None:
    await inner.send(b"GET / HTTP/1.1\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n")
    assert inner.transport.closed


async def test_state_of_a_request_is_a_copy(inner: Inner) -> None:
    state = inner.protocol.app_state
    await inner.send(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert inner.app.scopes[0]["state"] is not state


async def test_inner_protocol_pauses_reading_above_64_kib(inner: Inner) -> None:
    inner.app.reads_body = False
    inner.protocol.data_received(
        b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 99999\r\n\r\n" + b"x" * 65_000
    )
    assert inner.transport.reading
    inner.protocol.data_received(b"x" * 1000)
    assert not inner.transport.reading


async def test_inner_protocol_stops_writing_until_the_client_reads(inner: Inner) -> None:
    inner.protocol.pause_writing()
    await inner.send(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert not inner.transport.sent
    inner.protocol.resume_writing()
    await inner.send(b"")
    assert inner.transport.closed


async def test_lost_connection_tells_the_application(inner: Inner) -> None:
    await inner.send(b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 9\r\n\r\n")
    assert inner.protocol.eof_received() is None  # type: ignore[func-returns-value]
    inner.protocol.connection_lost(ConnectionResetError())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert inner.app.disconnects == 1
    assert not inner.state.connections


async def test_malformed_chunk_is_answered_400_and_closes(inner: Inner) -> None:
    await inner.send(
        b"POST / HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n"
    )
    assert inner.transport.sent.startswith(b"HTTP/1.1 400 ")
    assert inner.transport.sent.endswith(b"\r\n\r\nInvalid HTTP request received.")
    assert inner.transport.closed
