"""What `connections/web.py` and `run.py` use of uvicorn beyond its settings.

`make test-lowest` runs these tests with the lowest permitted release, and all other targets with
the highest one. If one of them fails, uvicorn has changed something that podsettle relies on.
`test_web.py` and `server/test_run.py` test the rest with podsettle's own classes.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tests.support.memory_transport import MemoryTransport
from tests.support.waiting import TIMEOUT_SECONDS, eventually


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        scope["state"]["events"] = events = ["startup"]
        for event in ("startup", "shutdown"):
            await receive()
            events.append(event)
            await send({"type": f"lifespan.{event}.complete"})
        return
    await scope["state"]["go_on"].wait()
    await send({"type": "http.response.start", "status": 204})
    await send({"type": "http.response.body"})


class Server(uvicorn.Server):
    """A server that notes the calls of `startup` and `shutdown`."""

    def __init__(self, **options: object) -> None:
        super().__init__(uvicorn.Config(app, http="h11", log_config=None, ws="none", **options))  # type: ignore[arg-type]
        self.calls: list[str] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.handler_at_startup = signal.getsignal(signal.SIGTERM)
        await super().startup(sockets)
        self.calls.append("startup")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.calls.append("shutdown")
        await super().shutdown(sockets)

    def connect(self, data: bytes = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") -> MemoryTransport:
        """Return a connection that belongs to no socket of the server."""
        protocol = H11Protocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        transport = MemoryTransport(protocol)
        protocol.data_received(data)
        return transport


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(server.serve(sockets=[]))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not server.started:  # noqa: ASYNC110 (uvicorn has no event)
            await asyncio.sleep(0)
        yield task
        server.should_exit = server.force_exit = True
        await task


def test_protocol_is_an_asyncio_protocol_with_these_keywords() -> None:
    assert issubclass(H11Protocol, asyncio.Protocol)
    parameters = inspect.signature(H11Protocol).parameters
    assert {"config", "server_state", "app_state"} <= set(parameters)


async def test_serve_starts_once_without_sockets_and_exits_when_told_to() -> None:
    server = Server()
    async with serving(server) as task:
        assert server.calls == ["startup"]
        assert server.lifespan.state["events"] == ["startup", "startup"]
        server.should_exit = True
        await task
    assert server.calls == ["startup", "shutdown"]
    assert server.lifespan.state["events"][-1] == "shutdown"


async def test_shutdown_waits_for_answers_and_closes_idle_connections_before_the_lifespan() -> None:
    server = Server(headers=[("Connection", "close")])
    async with serving(server) as task:
        server.lifespan.state["go_on"] = go_on = asyncio.Event()
        busy, idle = server.connect(), server.connect(b"GET / HTT")
        server.should_exit = True
        await eventually(lambda: idle.closed)
        idle.lose()
        assert not busy.closed
        assert not task.done()
        assert server.lifespan.state["events"][-1] == "startup"
        go_on.set()
        await eventually(lambda: busy.closed)
        assert bytes(busy.sent).lower().count(b"\r\nconnection: close\r\n") == 1
        busy.lose()
        await task
    assert server.lifespan.state["events"][-1] == "shutdown"


async def test_shutdown_ends_answers_that_take_too_long() -> None:
    server = Server()
    async with serving(server) as task:
        server.config.timeout_graceful_shutdown = 0
        server.lifespan.state["go_on"] = asyncio.Event()
        busy = server.connect()
        server.should_exit = True
        await task
        assert not server.server_state.tasks
        busy.lose()


async def test_forced_exit_leaves_the_lifespan_to_its_caller() -> None:
    server = Server()
    async with serving(server) as task:
        server.connect().protocol.pause_writing()
        server.lifespan.state["go_on"] = asyncio.Event()
        server.should_exit = server.force_exit = True
        await task
        assert server.lifespan.state["events"][-1] == "startup"
        await server.lifespan.shutdown()
        assert server.lifespan.state["events"][-1] == "shutdown"
        for pending in server.server_state.tasks:
            pending.cancel()


async def test_signal_handlers_are_set_before_startup() -> None:
    before = signal.getsignal(signal.SIGTERM)
    server = Server()
    async with serving(server):
        assert server.handler_at_startup == server.handle_exit
    assert signal.getsignal(signal.SIGTERM) == before
