"""TLS handshakes: silent clients, many of them, and clients that speak another protocol."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.http_client import InProcess
from tests.support.memory_transport import MemoryTransport
from tests.support.waiting import await_that, eventually
from webhook.server.connections.failed_handshakes import FailedHandshakes
from webhook.server.connections.handshakes import Handshakes
from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.metric_labels import HandshakeFailure

Serve = Callable[..., InProcess]


class Sockets:
    """Connections that begin no handshake by themselves."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def connect(self, server: InProcess) -> socket.socket:
        return self._stack.enter_context(socket.create_connection(server.address, timeout=30))


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    with ExitStack() as stack:
        yield Sockets(stack)


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server closes the connection. Return False if it sends data first."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True


def test_handshake_timeout_closes_silent_connections(serve: Serve, sockets: Sockets) -> None:
    server = serve(handshake_timeout_seconds=0.2)
    begun = sockets.connect(server)
    begun.sendall(b"\x16\x03\x01")
    assert is_closed(sockets.connect(server))
    assert is_closed(begun)

    def is_served() -> bool:
        # On a busy machine, a handshake may take longer than the timeout.
        try:
            return server.connect().get("/livez").status == 200
        except OSError:
            return False

    await_that(is_served, "a client that completes its handshake in time is served")


def test_oldest_handshake_is_ended_if_there_are_too_many(serve: Serve, sockets: Sockets) -> None:
    server = serve(max_handshakes=3, handshake_timeout_seconds=3600)
    silent = [sockets.connect(server) for _ in range(50)]
    for oldest in silent[:-3]:
        assert is_closed(oldest)
    assert all(map(is_open, silent[-3:]))
    assert server.connect().get("/livez").status == 200


def test_complete_handshakes_do_not_count_against_the_limit(serve: Serve) -> None:
    server = serve(max_handshakes=1)
    clients = [server.connect() for _ in range(5)]
    for client in clients:
        assert client.get("/livez").status == 200


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 9]
)
def test_invalid_handshake_closes_the_connection_without_a_warning(
    serve: Serve, sockets: Sockets, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(handshake_timeout_seconds=3600)
    garbage = sockets.connect(server)
    garbage.sendall(data)
    garbage.recv(100)  # An alert, or the end.
    assert is_closed(garbage)
    assert server.connect().get("/livez").status == 200
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_handshake_that_is_not_complete_does_not_delay_the_exit(
    serve: Serve, sockets: Sockets
) -> None:
    server = serve(handshake_timeout_seconds=3600)
    sockets.connect(server)
    assert server.connect().get("/livez").status == 200
    server.close()


# Single events


@pytest.fixture
def counted() -> list[HandshakeFailure]:
    return []


@pytest.fixture
def handshakes(counted: list[HandshakeFailure]) -> Handshakes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    failed = FailedHandshakes(counted.append)
    return Handshakes(asyncio.Protocol, context, DEFAULT_LIMITS, failed)


async def test_client_that_disconnects_before_its_handshake_is_counted(
    handshakes: Handshakes, counted: list[HandshakeFailure]
) -> None:
    with socket.socket() as not_connected:
        not_connected.setblocking(False)
        handshakes.begin(not_connected, asyncio.Protocol)
        await eventually(lambda: counted)
    assert counted == [HandshakeFailure.DISCONNECTED]


async def test_connection_without_a_file_descriptor_is_aborted(handshakes: Handshakes) -> None:
    with socket.socket() as closed:
        closed.close()
        transport = MemoryTransport(handshakes(), socket=closed)
    assert transport.aborted
