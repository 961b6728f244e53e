"""Connections that are handed over: what uvicorn receives, the limits, and how they end."""

from __future__ import annotations

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.support.memory_server import MemoryClient, MemoryServer, post
from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.reviews.client_certs import CLIENT_CERTIFICATE_KEY
from webhook.server.reviews.handler import RECEIVED_AT_KEY

LIFETIME = DEFAULT_LIMITS.handed_over_timeout_seconds
PROBE = DEFAULT_LIMITS.probe_timeout_seconds
WRITE = DEFAULT_LIMITS.write_timeout_seconds
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
READYZ = b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n"
VERSION = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
REVIEW = post(b"review")
PREVIEW = post(b"body12", path="/preview")
CHUNKED = (
    b"POST /preview HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n"
)
CHUNKS = CHUNKED.partition(b"\r\n\r\n")[2] + b"\r\n"


@pytest.fixture
async def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
async def client(server: MemoryServer) -> MemoryClient:
    return server.connect()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://x HTTP/1.1\r\nHost: x\r\n\r\n",
        CHUNKED[:-3] + b"no length\r\n",
        CHUNKED[:-3] + b"1\r\nx\r\n" * 2000,
    ],
    ids=["target", "absolute target", "chunk size", "small chunks"],
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


# Bodies


@pytest.mark.parametrize("pieces", [1, 3, 400])
@pytest.mark.parametrize("behind", [b"", LIVEZ, b"broken\n\n", b"X" * 300])
@pytest.mark.parametrize(
    ("request_", "forwarded"),
    [
        (post(b"0123456789", path="/preview"), b"0123456789"),
        (CHUNKED + b"\r\n", CHUNKS),
        (CHUNKED + b"Trailer: x\r\n\r\n", CHUNKS),
    ],
    ids=["length", "chunks", "trailers"],
)
async def test_uvicorn_receives_exactly_the_body(
    server: MemoryServer,
    pieces: int,
    behind: bytes,
    request_: bytes,
    forwarded: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received = bytearray()
    receive = HttpToolsProtocol.data_received

    def note(self: HttpToolsProtocol, data: bytes) -> None:
        received.extend(data)
        receive(self, data)

    monkeypatch.setattr(HttpToolsProtocol, "data_received", note)
    client = server.connect()
    data = request_ + behind
    size = -(-len(data) // pieces)
    client.send(*(data[at : at + size] for at in range(0, len(data), size)))
    await server.run()
    ((status, body, closes),) = client.answers
    assert (status, closes) == (200, True)
    assert body in (b"/preview:0123456789", b"/preview:abcde")
    assert client.transport.closed
    assert len(server.app.scopes) == 1
    head, _, content = bytes(received).partition(b"\r\n\r\n")
    assert head == request_.partition(b"\r\n\r\n")[0].replace(
        b"HTTP/1.1", b"HTTP/1.1\r\nConnection: close"
    )
    assert content == forwarded
    client.lose()
    await server.run()
    server.check_released()


async def test_rest_of_a_body_after_an_early_answer_is_not_a_request(
    client: MemoryClient, server: MemoryServer
) -> None:
    server.app.reads_body = False
    client.send(post(b"x" * 10, path="/preview", length=100_000))
    await server.run()
    assert client.answers == [(200, b"/preview:", True)]
    assert client.transport.closed
    client.send(b"x" * 99_990 + LIVEZ)
    await server.run()
    assert len(server.app.scopes) == 1
    assert not client.answers


async def test_application_gets_time_certificate_and_lifespan_state(server: MemoryServer) -> None:
    server.connect(peercert={"subject": ()}).send(LIVEZ)
    server.connect().send(LIVEZ)
    await server.run()
    with_certificate, without = (scope["state"] for scope in server.app.scopes)
    assert with_certificate["lifespan"] == "state"
    assert with_certificate[RECEIVED_AT_KEY] > 0
    assert with_certificate[CLIENT_CERTIFICATE_KEY] == {"subject": ()}
    assert CLIENT_CERTIFICATE_KEY not in without


# Times


@pytest.mark.parametrize(
    ("request_", "seconds"),
    [(PREVIEW[:-3], LIFETIME), (PREVIEW, LIFETIME), (LIVEZ, PROBE), (READYZ, PROBE)],
    ids=["incomplete", "answered", "livez", "readyz"],
)
async def test_lifetime_ends_with_an_abort_and_is_not_extended(
    client: MemoryClient, server: MemoryServer, request_: bytes, seconds: float
) -> None:
    client.send(request_[:-1], request_[-1:])
    await server.run()
    assert server.loop.timers == [seconds]
    server.loop.expire(seconds)
    assert client.transport.aborted
    await server.run()
    server.check_released()


@pytest.mark.parametrize(
    "request_",
    [
        LIVEZ.replace(b"GET", b"POST"),
        post(b"x", path="/livez").replace(b"POST", b"GET"),
        LIVEZ.replace(b"livez", b"livez/"),
        VERSION,
    ],
)
async def test_other_requests_do_not_have_the_short_lifetime_of_probes(
    client: MemoryClient, server: MemoryServer, request_: bytes
) -> None:
    client.send(request_)
    assert server.loop.timers == [LIFETIME]
    assert not server.shared.places.probes


@pytest.mark.parametrize("is_lost", [False, True], ids=["stays", "is lost"])
async def test_write_timeout_aborts_a_client_that_does_not_read(
    client: MemoryClient, server: MemoryServer, is_lost: bool
) -> None:
    client.transport.capacity = 1
    server.app.answer = b"x" * 1000
    client.send(LIVEZ)
    await server.run()
    # uvicorn has written the head, and waits before the body.
    assert client.answers == []
    assert sorted(filter(None, server.loop.timers)) == [PROBE, WRITE]
    if is_lost:
        client.lose()
    else:
        server.loop.expire(WRITE)
        assert client.transport.aborted
    await server.run()
    server.check_released()


async def test_client_that_reads_in_time_gets_the_whole_answer(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.transport.capacity = 1
    server.app.answer = b"x" * 1000
    client.send(PREVIEW)
    await server.run()
    client.transport.read_all()
    await server.run()
    assert client.answers == [(200, b"x" * 1000, True)]
    assert server.loop.timers == [LIFETIME]


async def test_pause_of_writing_that_is_in_force_applies_to_uvicorn(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.transport.capacity = 1
    client.send(REVIEW)
    assert client.answers == [(200, b"echo:review", False)]
    client.send(PREVIEW)
    await server.run()
    assert not client.transport.sent
    assert sorted(filter(None, server.loop.timers)) == [WRITE, LIFETIME]
    client.transport.read_all()
    await server.run()
    assert client.answers == [(200, b"/preview:body12", True)]


# Places


async def test_requests_above_the_number_of_places_are_refused_and_probes_and_reviews_are_not() -> (
    None
):
    server = MemoryServer(max_handed_over=2)
    holding = [server.connect(peername=(f"10.0.0.{number}", 1)) for number in range(2)]
    holding[0].send(PREVIEW[:-3])
    holding[1].send(VERSION)
    refused = server.connect(peername=("10.0.0.9", 1))
    refused.send(CHUNKED)
    assert refused.answers == [(503, b"Too many requests are in progress.", True)]
    assert refused.transport.closed
    probe, review = server.connect(), server.connect()
    probe.send(READYZ)
    review.send(REVIEW)
    await server.run()
    assert probe.answers == [(200, b"/readyz:", True)]
    assert review.answers == [(200, b"echo:review", False)]
    # A place is free again once its connection is lost.
    holding[1].lose()
    retry = server.connect()
    retry.send(PREVIEW)
    await server.run()
    assert retry.answers == [(200, b"/preview:body12", True)]


async def test_one_client_cannot_take_all_places() -> None:
    server = MemoryServer(max_handed_over_per_client=2)
    clients = [server.connect(peername=("10.0.0.7", number)) for number in range(3)]
    other = server.connect(peername=("10.0.0.8", 0))
    for client in (*clients, other):
        client.send(PREVIEW[:-3])
    assert [[status for status, _, _ in client.answers] for client in clients] == [[], [], [503]]
    other.send(PREVIEW[-3:])
    await server.run()
    assert other.answers == [(200, b"/preview:body12", True)]


async def test_probe_takes_the_place_of_the_oldest_one_of_its_client_or_of_all() -> None:
    server = MemoryServer(max_handed_over_per_client=2, max_probes=3)
    one, two, three, four, five, six = (
        server.connect(peername=(f"10.0.0.{number}", 0)) for number in (1, 2, 2, 2, 3, 3)
    )
    for client in (one, two, three, four):
        client.send(LIVEZ)
    await server.run()
    assert [c.transport.aborted for c in (one, two, three, four)] == [False, True, False, False]
    five.send(LIVEZ)
    six.send(LIVEZ)
    await server.run()
    assert [c.transport.aborted for c in (one, three, four, five, six)] == [1, 1, 0, 0, 0]
    assert five.answers == six.answers == [(200, b"/livez:", True)]


async def test_head_counts_in_the_memory_budget_until_the_end_of_the_connection(
    client: MemoryClient, server: MemoryServer
) -> None:
    request = post(b"", "X: " + "x" * 5000, path="/preview", length=9)
    client.send(request)
    assert server.budget.used_bytes == len(request)
    client.send(b"123456789")
    await server.run()
    assert server.budget.used_bytes == len(request)
    client.lose()
    await server.run()
    server.check_released()


@pytest.mark.parametrize(("excess", "status"), [(0, 200), (1, 400)])
async def test_heads_are_limited_in_length_and_those_of_reviews_are_not(
    excess: int, status: int
) -> None:
    request = post(b"body", path="/preview")
    server = MemoryServer(max_handed_over_header_bytes=len(request) - len(b"body") - excess)
    client, review = server.connect(), server.connect()
    client.send(request)
    await server.run()
    ((found, _, closes),) = client.answers
    assert (found, closes) == (status, True)
    assert len(server.app.scopes) == (status == 200)
    assert client.transport.closed
    review.send(post(b"review", "X: y"))
    assert review.answers == [(200, b"echo:review", False)]


# The exit


async def test_shutdown_lets_a_request_finish(client: MemoryClient, server: MemoryServer) -> None:
    client.send(PREVIEW[:-3])
    (inner,) = server.uvicorn.connections
    inner.shutdown()
    client.send(PREVIEW[-3:])
    await server.run()
    assert client.answers == [(200, b"/preview:body12", True)]
    assert client.transport.closed
    # uvicorn waits until the answer is sent.
    assert server.uvicorn.connections
    client.lose()
    assert not server.uvicorn.connections


async def test_end_of_the_data_reaches_the_application(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(PREVIEW[:-3])
    # A true result would keep the connection half open.
    assert not client.transport.protocol.eof_received()
    client.lose()
    await server.run()
    assert server.app.disconnects == 1
    server.check_released()
