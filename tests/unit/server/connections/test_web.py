"""Connections of the web port without sockets: uvicorn's protocol, and the bounds around it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from tests.support.complexity import cpu_ratio
from tests.support.memory_transport import MemoryTransport
from webhook.server.connections.request_head import MAX_HEADERS
from webhook.server.connections.web import WebProtocol
from webhook.server.limits import Limits

GET = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /preview HTTP/1.1\r\nHost: x\r\n"
LARGE_CHUNK = b"400\r\n" + b"\n" * 1024 + b"\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


class Recorder:
    """An ASGI application that answers with the path and the length of the body."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.disconnects = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body = b""
        more_body = True
        while more_body:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnects += 1
                return
            body += message["body"]
            more_body = message["more_body"]
        answer = f"{scope['path']} {len(body)}".encode()
        headers = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


class WebServer:
    """What the connections share, and the connections that a test makes."""

    def __init__(self, **limits: Any) -> None:
        self.app = Recorder()
        self.limits = replace(Limits(), **limits)
        self.open: dict[WebProtocol, None] = {}
        config = uvicorn.Config(
            self.app,
            http="h11",
            h11_max_incomplete_event_size=self.limits.max_header_bytes,
            headers=[("Connection", "close")],
            lifespan="off",
            log_config=None,
            ws="none",
        )
        config.load()
        self._uvicorn = uvicorn.Server(config)
        self.state = self._uvicorn.server_state
        self.state.default_headers = config.encoded_headers

    def connect(self) -> MemoryTransport:
        protocol = WebProtocol(
            self.open,
            self.limits,
            config=self._uvicorn.config,
            server_state=self.state,
            app_state={"key": "value"},
        )
        return MemoryTransport(protocol)

    async def send(self, transport: MemoryTransport, data: bytes, size: int = 1 << 30) -> bytes:
        """Send data in pieces, and return the answer."""
        for begin in range(0, len(data), size):
            transport.protocol.data_received(data[begin : begin + size])
        for _ in range(10):
            await asyncio.sleep(0)
        return bytes(transport.sent)


@pytest.fixture
async def server() -> WebServer:
    return WebServer()


@pytest.mark.parametrize("connection", [b"", b"Connection: keep-alive\r\n"])
@pytest.mark.parametrize("size", [1, 1 << 30])
async def test_connection_answers_one_request_and_closes(
    server: WebServer, connection: bytes, size: int
) -> None:
    client = server.connect()
    request = GET.replace(b"\r\n\r\n", b"\r\n" + connection + b"\r\n")
    answer = await server.send(client, request * 3, size)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.lower().count(b"connection: close\r\n") == 1
    assert answer.endswith(b"/version 0")
    assert client.closed
    assert not client.aborted
    assert len(server.app.scopes) == 1
    assert server.app.scopes[0]["state"] == {"key": "value"}
    client.lose()
    assert not server.open
    assert not server.state.connections


async def test_oldest_connection_is_aborted_if_there_are_too_many() -> None:
    server = WebServer(max_web_connections=2)
    clients = [server.connect() for _ in range(5)]  # In one iteration of the loop.
    assert [client.aborted for client in clients] == [True, True, True, False, False]
    assert len(server.open) == 2
    clients[3].lose()
    server.connect()
    assert not clients[4].aborted


async def test_lifetime_ends_with_an_abort_and_is_not_extended() -> None:
    server = WebServer(web_timeout_seconds=60)
    loop = asyncio.get_running_loop()
    before = loop.time()
    client = server.connect()
    for data in (POST, b"Content-Length: 9\r\n\r\n", b"body"):
        await server.send(client, data)
    lifetime: asyncio.TimerHandle = client.protocol._lifetime
    assert before + 60 <= lifetime.when() <= loop.time() + 60
    lifetime._run()
    await server.send(client, b"")
    assert client.aborted
    assert client.lost
    assert server.app.disconnects == 1
    other = server.connect()
    other.lose()
    assert other.protocol._lifetime.cancelled()


LENGTH = 24 * 1024
BOUNDED = {
    "headers": (GET[:-2] + b"a:\r\n" * (MAX_HEADERS - 1) + b"\r\n", 200),
    "too many headers": (GET[:-2] + b"a:\r\n" * MAX_HEADERS + b"\r\n", 0),
    "too many headers in line feeds": (b"GET / HTTP/1.1\nHost: x\n" + b"a:\n" * 101 + b"\n", 0),
    "too many headers without an end": (GET[:-2] + b"a:\r\n" * 6000, 0),
    "line feeds and a body": (
        POST.replace(b"\r", b"") + b"Content-Length: 9000\n\n" + b"\n" * 9000,
        200,
    ),
    "long head": (GET[:-2] + b"x: " + b"y" * (LENGTH - 100) + b"\r\n\r\n", 200),
    "too long head": (GET[:-2] + b"x: " + b"y" * (2 * LENGTH) + b"\r\n\r\n", 400),
    "too long head without an end": (GET[:-2] + b"x: " + b"y" * 2 * LENGTH, 400),
    "body of many lines": (POST + b"Content-Length: 9000\r\n\r\n" + b"\r\n" * 4500, 200),
    "chunks": (CHUNKED + LARGE_CHUNK + b"1\r\nx\r\n" * 1990 + b"0\r\n\r\n", 200),
    "too many chunks": (CHUNKED + b"1\r\nx\r\n" * 2001, 0),
    "too long trailers": (CHUNKED + b"0\r\nx: " + b"y" * 2 * LENGTH, 400),
    "chunk of many lines": (
        CHUNKED + b"2328;x=y\r\n" + b"a:\r\n" * 2250 + b"\r\n000\r\na: b\r\n\r\n", 200
    ),
    "trailers": (CHUNKED + b"0\r\n" + b"a:\r\n" * MAX_HEADERS + b"\r\n", 200),
    "too many trailers": (CHUNKED + b"0 \r\n" + b"a:\n" * (MAX_HEADERS + 2), 0),
    "many lines behind a request": (GET + b"\n" * 9000, 200),
    "no head": (b"\x16\x03\x01\r\n\r\n", 400),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("size", [100, 1 << 30])
async def test_heads_and_chunks_are_bounded(server: WebServer, name: str, size: int) -> None:
    data, status = BOUNDED[name]
    client = server.connect()
    answer = await server.send(client, data, size)
    assert answer[:12] == (b"HTTP/1.1 %d" % status if status else b"")
    assert client.closed
    assert client.aborted is (status == 0)


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
@pytest.mark.parametrize("coding", [b"Content-Length: 1000000", b"Transfer-Encoding: chunked"])
async def test_received_body_is_not_kept(server: WebServer, coding: bytes, end: bytes) -> None:
    client = server.connect()
    head = (POST + coding + b"\r\n\r\n").replace(b"\r\n", end)
    for data in (head[:9], head[9:] + b"fffff\r\n", *[b"x" * 100_000] * 9):
        await server.send(client, data)
    assert not client.closed
    assert client.protocol._line == b""


async def test_time_for_too_many_chunks_does_not_grow_with_what_follows_them(
    server: WebServer,
) -> None:
    chunks = CHUNKED + b"1\r\nx\r\n" * 2001

    def receive(data: bytes) -> None:
        server.connect().protocol._count_lines(data)

    assert cpu_ratio(receive, chunks + b"\n" * 1024 * 1024, chunks) < 3
