"""Delegated requests: what uvicorn's protocol receives, and how its connection ends."""

from __future__ import annotations

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.support.memory_server import MemoryClient, MemoryServer, post
from webhook.server.connections.protocol import State
from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.reviews.client_certs import CLIENT_CERTIFICATE_KEY
from webhook.server.reviews.handler import RECEIVED_AT_KEY

DELEGATED = DEFAULT_LIMITS.delegated_timeout_seconds
DRAIN_BODY = DEFAULT_LIMITS.drain_body_timeout_seconds
WRITE = DEFAULT_LIMITS.write_timeout_seconds
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
REVIEW = post(b"review")
CHUNKED = (
    b"POST /preview HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n"
)


@pytest.fixture
async def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
async def client(server: MemoryServer) -> MemoryClient:
    return server.connect()


async def test_delegated_request_is_answered_and_its_connection_closes(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(REVIEW + LIVEZ + REVIEW)
    await server.run()
    assert client.answers == [(200, b"echo:review", False), (200, b"/livez:", True)]
    (scope,) = server.app.scopes
    assert scope["headers"] == [(b"connection", b"close"), (b"host", b"x")]
    assert client.transport.closed
    assert client.is_in(State.CLOSING)
    assert server.loop.timers == [WRITE]
    client.lose()
    await server.run()
    server.check_released()


@pytest.mark.parametrize("pieces", [1, 3, 400])
@pytest.mark.parametrize("behind", [b"", LIVEZ, b"broken\n\n", b"X" * 300])
async def test_inner_protocol_receives_exactly_the_body(
    server: MemoryServer, pieces: int, behind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = bytearray()
    receive = HttpToolsProtocol.data_received

    def note(self: HttpToolsProtocol, data: bytes) -> None:
        received.extend(data)
        receive(self, data)

    monkeypatch.setattr(HttpToolsProtocol, "data_received", note)
    for request in (
        post(b"0123456789", path="/preview"),
        CHUNKED + b"\r\n",
        CHUNKED + b"Trailer: x\r\n\r\n",
    ):
        client = server.connect()
        data = request + behind
        size = -(-len(data) // pieces)
        client.send(*(data[at : at + size] for at in range(0, len(data), size)))
        await server.run()
        ((status, body, closes),) = client.answers
        assert (status, closes) == (200, True)
        assert body in (b"/preview:0123456789", b"/preview:abcde")
        assert client.transport.closed
        assert len(server.app.scopes) == 1
        server.app.scopes.clear()
        head, _, content = bytes(received).partition(b"\r\n\r\n")
        received.clear()
        assert head == request.partition(b"\r\n\r\n")[0].replace(
            b"HTTP/1.1", b"HTTP/1.1\r\nConnection: close"
        )
        chunked = CHUNKED.partition(b"\r\n\r\n")[2] + b"\r\n"
        assert content == (chunked if b"chunked" in head else b"0123456789")
        client.lose()
    server.check_released()


async def test_inner_protocol_gets_time_certificate_and_lifespan_state(
    server: MemoryServer,
) -> None:
    client = server.connect(peercert={"subject": ()})
    client.send(LIVEZ)
    await server.run()
    (scope,) = server.app.scopes
    assert scope["state"]["lifespan"] == "state"
    assert scope["state"][RECEIVED_AT_KEY] == client.protocol._received_at
    assert scope["state"][CLIENT_CERTIFICATE_KEY] == {"subject": ()}
    server.app.scopes.clear()
    server.connect().send(LIVEZ)
    await server.run()
    assert CLIENT_CERTIFICATE_KEY not in server.app.scopes[0]["state"]


async def test_server_knows_one_protocol_of_a_connection_at_a_time(
    client: MemoryClient, server: MemoryServer
) -> None:
    assert server.uvicorn.connections == {client.protocol}
    client.send(post(b"", path="/preview", length=9))
    (inner,) = server.uvicorn.connections
    assert inner is not client.protocol
    client.send(b"123456789")
    await server.run()
    assert server.uvicorn.connections == {client.protocol}
    client.lose()
    assert not server.uvicorn.connections


async def test_early_answer_is_readable_while_the_client_still_sends(
    client: MemoryClient, server: MemoryServer
) -> None:
    server.app.reads_body = False
    client.send(post(b"x" * 10, path="/preview", length=100_000))
    await server.run()
    assert client.answers == [(200, b"/preview:", True)]
    assert client.is_in(State.DISCARDING)
    assert not client.transport.closed
    assert not server.shared.delegated
    client.send(b"x" * 99_989)
    assert not client.transport.closed
    client.send(b"x" + LIVEZ)
    assert client.transport.closed
    await server.run()
    assert len(server.app.scopes) == 1
    client.lose()
    server.check_released()


@pytest.mark.parametrize("is_complete", [False, True])
async def test_rest_of_an_answered_chunked_body_is_discarded_until_its_end_or_the_timeout(
    client: MemoryClient, server: MemoryServer, is_complete: bool
) -> None:
    server.app.reads_body = False
    client.send(CHUNKED[:-20])
    await server.run()
    client.send(CHUNKED[-20:-1])
    assert client.is_in(State.DISCARDING)
    if is_complete:
        client.send(CHUNKED[-1:] + LIVEZ)
    else:
        server.loop.expire(DRAIN_BODY)
    assert client.transport.closed
    assert len(client.answers) == 1


async def test_reading_that_the_inner_protocol_paused_resumes_after_its_answer(
    client: MemoryClient, server: MemoryServer
) -> None:
    server.app.reads_body = False
    client.send(post(b"x" * 70_000, path="/preview", length=100_000))
    assert not client.transport.reading
    await server.run()
    assert client.transport.reading
    client.send(b"x" * 30_000)
    assert client.transport.closed


async def test_delegated_timeout_aborts_the_connection(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(b"", path="/preview", length=9))
    timer = client.protocol._timer
    client.send(b"1")
    assert client.protocol._timer is timer
    server.loop.expire(DELEGATED)
    assert client.transport.aborted
    await server.run()
    assert server.app.disconnects == 1
    server.check_released()


async def test_write_timeout_aborts_a_delegated_connection(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.transport.capacity = 1
    server.app.answer = b"x" * 1000
    client.send(LIVEZ)
    await server.run()
    # uvicorn has written the head, and waits before the body.
    assert client.answers == []
    assert sorted(filter(None, server.loop.timers)) == [WRITE, DELEGATED]
    server.loop.expire(WRITE)
    assert client.transport.aborted
    await server.run()
    server.check_released()


async def test_delegated_answer_waits_until_the_client_reads(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.transport.capacity = 1
    client.send(REVIEW)
    client.send(LIVEZ)
    await server.run()
    assert not server.app.scopes
    client.transport.capacity = len(client.transport.sent) + 1
    client.transport.read_all()
    await server.run()
    assert len(server.app.scopes) == 1
    client.transport.read_all()
    await server.run()
    assert [status for status, _, _ in client.answers] == [200, 200]


@pytest.mark.parametrize("chunked", [False, True])
async def test_requests_with_bodies_above_the_limit_are_refused_and_probes_are_not(
    chunked: bool,
) -> None:
    server = MemoryServer(max_delegated=2)
    whole = CHUNKED if chunked else post(b"be1234567", path="/preview")
    request, rest = whole[:-3], whole[-3:]
    holding = [server.connect() for _ in range(2)]
    for client in holding:
        client.send(request)
    late, probe, review = (server.connect() for _ in range(3))
    late.send(request)
    assert late.answers == [(503, b"Too many requests are in progress.", True)]
    assert late.is_in(State.DISCARDING)
    late.send(rest)
    assert late.transport.closed
    probe.send(LIVEZ)
    review.send(REVIEW)
    await server.run()
    assert probe.answers == [(200, b"/livez:", True)]
    assert review.answers == [(200, b"echo:review", False)]
    holding[0].lose()
    retry = server.connect()
    retry.send(post(b"body", path="/preview"))
    await server.run()
    assert retry.answers == [(200, b"/preview:body", True)]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://x HTTP/1.1\r\nHost: x\r\n\r\n",
        CHUNKED[:-3] + b"no length\r\n",
    ],
)
async def test_errors_that_only_uvicorn_finds_are_answered_and_close(
    client: MemoryClient, server: MemoryServer, request_: bytes
) -> None:
    client.send(request_)
    await server.run()
    ((status, _, closes),) = client.answers
    assert status in (200, 400)
    assert closes
    assert client.transport.closed
    client.lose()
    await server.run()
    server.check_released()


@pytest.mark.parametrize(("excess", "status"), [(0, 200), (1, 400)])
async def test_number_of_delegated_headers_is_limited(excess: int, status: int) -> None:
    server = MemoryServer(max_headers=5)
    client = server.connect()
    headers = [f"X{number}: y" for number in range(2 + excess)]
    client.send(post(b"body", *headers, path="/preview"))
    await server.run()
    ((found, _, closes),) = client.answers
    assert (found, closes) == (status, True)
    assert client.transport.closed
    review = server.connect()
    review.send(post(b"review", *headers * 9))
    assert review.answers == [(200, b"echo:review", False)]


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
@pytest.mark.parametrize("wish", [b"close", b"keep-alive", b"keep-alive, x"])
async def test_connection_closes_whatever_the_client_asks_for(
    client: MemoryClient, server: MemoryServer, version: bytes, wish: bytes
) -> None:
    client.send(b"GET /livez %b\r\nHost: x\r\nConnection: %b\r\n\r\n" % (version, wish))
    await server.run()
    assert client.answers == [(200, b"/livez:", True)]
    assert client.transport.closed


async def test_expect_100_continue_is_answered_by_uvicorn(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(b"", "Expect: 100-continue", length=6))
    await server.run()
    assert client.answers == [(100, b"", False)]
    client.send(b"review")
    await server.run()
    assert client.answers == [(200, b"/mutate:review", True)]


async def test_end_of_the_clients_data_is_passed_on(
    client: MemoryClient, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.send(post(b"", path="/preview", length=6))
    ends: list[HttpToolsProtocol] = []
    monkeypatch.setattr(HttpToolsProtocol, "eof_received", lambda inner: ends.append(inner))
    # A true result would keep the connection half open.
    assert not client.protocol.eof_received()  # type: ignore[func-returns-value]
    assert len(ends) == 1
    client.lose()
    await server.run()
    assert server.app.disconnects == 1
    server.check_released()


async def test_shutdown_lets_a_delegated_request_finish(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(b"", path="/preview", length=6))
    for connection in list(server.uvicorn.connections):
        connection.shutdown()
    client.send(b"review")
    await server.run()
    assert client.answers == [(200, b"/preview:review", True)]
    assert client.transport.closed
