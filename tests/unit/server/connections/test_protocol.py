"""Connections without sockets: what each event does, what ends each limit, and what is freed."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.memory_server import (
    BODY_SECONDS,
    INVALID,
    LOOKUP,
    MemoryClient,
    MemoryServer,
    post,
)
from webhook.server.connections.protocol import State
from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.reviews.handler import GUARANTEED_DECISION_BYTES

IDLE = DEFAULT_LIMITS.idle_timeout_seconds
HEADER = DEFAULT_LIMITS.header_timeout_seconds
WRITE = DEFAULT_LIMITS.write_timeout_seconds
SHUTDOWN_IDLE = DEFAULT_LIMITS.shutdown_idle_timeout_seconds
CLOSE = DEFAULT_LIMITS.close_timeout_seconds
CONTINUE = (100, b"", False)
REVIEW = post(b"review")
LAST_REVIEW = post(b"review", "Connection: close")
ECHO = (200, b"echo:review", False)
LAST = (200, b"echo:review", True)
LONG = b"x" * (GUARANTEED_DECISION_BYTES + 1)
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
READYZ = b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n"


class Clock:
    """The time, which a test advances."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("webhook.server.connections.protocol.monotonic", found)
    return found


@pytest.fixture
async def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
async def client(server: MemoryServer) -> MemoryClient:
    return server.connect()


async def lose(client: MemoryClient, server: MemoryServer) -> None:
    client.transport.lose()
    await server.run()
    server.check_released()


# Limits, and what ends them


class Limit(NamedTuple):
    """What a client sends before it stops, and how its connection ends."""

    sent: tuple[bytes, ...]
    seconds: float
    """The time limit."""
    answers: tuple[tuple[int, bytes, bool], ...] = ()
    close_seconds: float = CLOSE
    """The time limit of the state CLOSING, or 0 if the connection is aborted."""
    reads: bool = True
    """Whether the client reads the answer."""


LIMITS = {
    "idle": Limit((), IDLE),
    "first byte of a head": Limit((REVIEW[:1],), HEADER),
    "head": Limit((REVIEW[:30], REVIEW[30:60]), HEADER),
    "head after empty lines": Limit((b"\r\n", b"\r\n" + REVIEW[:30]), HEADER),
    "body": Limit(
        (post(b"be", length=9), b"gin"), BODY_SECONDS, ((200, b"part:begin", True),), WRITE
    ),
    "no body": Limit((post(b"", length=9),), BODY_SECONDS, ((408, b"too late\n", True),), WRITE),
    "deadline of a body": Limit(
        (post(b"be", path="/mutate?timeout=1s", length=9),), 0.7, ((200, b"part:be", True),), WRITE
    ),
    "answer": Limit((REVIEW,), WRITE, (ECHO,), 0, reads=False),
    "long answer": Limit((post(LONG),), WRITE, ((200, b"echo:" + LONG, False),), 0, reads=False),
    "probe": Limit((LIVEZ,), WRITE, ((200, b"ok", False),), 0, reads=False),
    "last answer": Limit((LAST_REVIEW,), WRITE, (LAST,), 0),
}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
async def test_limit_of_a_slow_client_ends_its_connection(
    client: MemoryClient, server: MemoryServer, clock: Clock, limit: Limit
) -> None:
    assert client.transport.write_limits == (DEFAULT_LIMITS.write_high_water_bytes, None)
    if not limit.reads:
        client.transport.capacity = 1
    client.send(*limit.sent)
    assert server.loop.timers == [pytest.approx(limit.seconds)]
    assert client.transport.closed is (limit.answers == (LAST,))
    clock.now += limit.seconds
    server.loop.expire(server.loop.timers[0])
    assert tuple(client.answers) == limit.answers
    if limit.close_seconds:
        assert client.is_in(State.CLOSING)
        assert client.transport.closed
        assert not client.transport.aborted
        assert server.budget.used_bytes == 0
        client.send(REVIEW, b"more")  # It is discarded.
        assert server.loop.timers == [limit.close_seconds]
        server.loop.expire(limit.close_seconds)
    assert client.transport.aborted
    await server.run()
    assert not client.answers
    server.check_released()


@pytest.mark.parametrize("request_", [REVIEW[:3], REVIEW[:-3]], ids=["head", "body"])
async def test_further_bytes_extend_no_timeout(
    client: MemoryClient, server: MemoryServer, request_: bytes
) -> None:
    client.send(request_[:-2])
    started = server.loop.timers_started
    client.send(request_[-2:-1], request_[-1:])
    assert server.loop.timers_started == started
    assert len(server.loop.timers) == 1


async def test_idle_timeout_counts_from_the_last_review(
    client: MemoryClient, server: MemoryServer, clock: Clock
) -> None:
    started = server.loop.timers_started
    clock.now += IDLE - 1
    client.send(REVIEW)
    assert server.loop.timers_started == started  # A timer for each review would take too long.
    clock.now += 1
    server.loop.expire(IDLE)
    assert not client.transport.closed
    assert server.loop.timers == [IDLE - 1]
    clock.now += IDLE - 1
    server.loop.expire(IDLE - 1)
    assert client.transport.closed


async def test_empty_lines_do_not_extend_the_idle_timeout(
    client: MemoryClient, server: MemoryServer, clock: Clock
) -> None:
    clock.now += IDLE
    client.send(b"\r\n")
    server.loop.expire(IDLE)
    assert client.transport.closed


async def test_time_in_the_queue_is_a_part_of_the_body_timeout(
    client: MemoryClient, server: MemoryServer, clock: Clock
) -> None:
    server.connect().send(LIVEZ)  # The iteration of the loop begins.
    clock.now += 2
    client.send(post(b"begin", length=9))
    assert server.loop.timers == [IDLE, BODY_SECONDS - 2]
    clock.now += BODY_SECONDS
    server.loop.iterate()
    server.loop.expire(BODY_SECONDS - 2)
    # The time spent waiting for the client is none in the queue.
    assert server.handler.timings[-1].received_at == clock.now


@pytest.mark.parametrize("received", [30, 60, -3], ids=["head", "rest of a head", "body"])
async def test_deadline_counts_from_the_first_byte(
    client: MemoryClient, server: MemoryServer, clock: Clock, received: int
) -> None:
    request = post(b"review", path="/mutate?timeout=5s")
    client.send(request[:10], request[10:received])
    clock.now += 2
    server.loop.iterate()
    client.send(request[received:-1])
    body_seconds = 3.5 if received == -3 else 1.5  # What 70 % of the timeout leaves.
    assert server.loop.timers == [pytest.approx(body_seconds)]
    client.send(request[-1:])
    client.send(request)
    late, whole = server.handler.timings
    assert (late.began_at, late.received_at) == (clock.now - 2, clock.now)
    assert whole.began_at == whole.received_at == clock.now


# Answers


async def test_review_in_one_piece_is_answered_in_one_write(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(REVIEW)
    head, body = bytes(client.transport.sent).split(b"\r\n\r\n")
    names = [line.split(b":")[0] for line in head.split(b"\r\n")]
    assert names == [b"HTTP/1.1 200 OK", b"date", b"content-type", b"content-length"]
    assert head.endswith(b"content-type: application/json\r\ncontent-length: 11")
    assert body == b"echo:review"
    assert client.transport.writes == 1
    assert client.is_in(State.IDLE)
    assert server.loop.timers == [IDLE]
    await lose(client, server)


@pytest.mark.parametrize("ready", [True, False])
async def test_probes_are_answered_on_a_connection_that_stays_open(
    client: MemoryClient, server: MemoryServer, ready: bool
) -> None:
    server.is_ready = ready
    answer = (200, b"ok", False) if ready else (503, b"not ready", False)
    client.send(LIVEZ, READYZ, REVIEW, READYZ[:20], READYZ[20:])
    assert client.answers == [(200, b"ok", False), answer, ECHO, answer]
    client.send(LIVEZ.replace(b"GET", b"HEAD"))
    assert client.transport.sent.endswith(
        b"content-type: text/plain; charset=utf-8\r\ncontent-length: 2\r\n\r\n"
    )
    client.transport.sent.clear()
    client.send(LIVEZ.replace(b"1.1", b"1.0"))
    assert client.answers == [(200, b"ok", True)]
    assert client.transport.closed
    assert not server.handler.refused


TOO_LONG = b"GET / HTTP/1.1\r\nx: " + b"y" * DEFAULT_LIMITS.max_header_bytes
REFUSED = {
    400: (b"GET /livez HTTP/1.1\r\n\r\n", b"Invalid HTTP request received."),
    404: (LIVEZ.replace(b"livez", b"metrics"), b"All other paths are on --web-port."),
    405: (post(b"x" * 99).replace(b"POST", b"PUT"), b"POST an AdmissionReview here."),
    411: (
        REVIEW.replace(b"Content-Length: 6", b"Transfer-Encoding: chunked"),
        b"Transfer-Encoding.",
    ),
    413: (post(b"", length=DEFAULT_LIMITS.max_body_bytes + 1), b"longer than 33554432 bytes."),
    415: (REVIEW.replace(b"application/json", b"text/plain"), b"Content-Type: application/json"),
    431: (TOO_LONG + b"\r\n\r\n", b"The headers are longer than 24576 bytes."),
}


@pytest.mark.parametrize("status", REFUSED)
@pytest.mark.parametrize("size", [1000, 100_000])
async def test_refused_request_is_answered_and_the_rest_of_it_is_discarded(
    client: MemoryClient, server: MemoryServer, status: int, size: int
) -> None:
    request, text = REFUSED[status]
    # Reviews before it and behind it.
    client.send(REVIEW, *(request[at : at + size] for at in range(0, len(request), size)))
    client.send(REVIEW)
    answered, (found, body, closes) = client.answers
    assert answered == ECHO
    assert (found, closes) == (status, True)
    assert body.endswith(text + b"\n")
    assert client.is_in(State.CLOSING)
    assert server.loop.timers == [WRITE]
    assert server.handler.refused == [status]
    assert server.budget.used_bytes == 0
    await lose(client, server)


@pytest.mark.parametrize("size", [7, 100_000])
@pytest.mark.parametrize(
    ("status", "head"),
    [
        (404, b"HEAD /none HTTP/1.1\r\nHost: x\r\n\r\n"),
        (405, b"HEAD /mutate HTTP/1.1\r\nHost: x\r\n\r\n"),
        (400, b"HEAD /livez HTTP/1.1\r\n\r\n"),
        (411, b"HEAD /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n"),
        (431, b"HEAD /livez HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 200 + b"\r\n"),
        (431, TOO_LONG.replace(b"GET", b"HEAD")),
        (400, b"HEAD /livez HTTP/1.1\nHost: x\n\n"),
        (400, b"HEAD /livez HTTP/1.1\r\nHost: x\n"),
    ],
)
async def test_refusal_of_a_head_request_has_no_body(
    client: MemoryClient, server: MemoryServer, status: int, head: bytes, size: int
) -> None:
    client.send(*(head[at : at + size] for at in range(0, len(head), size)))
    sent = bytes(client.transport.sent)
    assert sent.startswith(b"HTTP/1.1 %d " % status)
    assert sent.count(b"\r\n\r\n") == 1
    assert sent.endswith(b"\r\n\r\n")
    assert (b"\r\nallow: POST\r\n" in sent) is (status == 405)
    assert client.transport.closed
    assert server.handler.refused == [status]


async def test_refusal_of_the_handler_closes_the_connection(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(INVALID))
    assert client.answers == [(400, b"invalid\n", True)]
    assert client.transport.closed
    assert server.handler.refused == [400]


async def test_invalid_head_is_logged_at_debug_with_its_client(
    server: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "webhook")
    server.connect(peername=("10.0.0.7", 4711)).send(REFUSED[400][0])
    (line,) = caplog.messages
    assert line.startswith("request from ('10.0.0.7', 4711): answered 400: Missing mandatory Host")


@pytest.mark.parametrize("certificate", [None, {"subject": ()}])
@pytest.mark.parametrize("size", [50, len(REVIEW)])
async def test_review_of_a_client_without_a_required_certificate_is_refused(
    certificate: dict[str, object] | None, size: int
) -> None:
    server = MemoryServer(needs_certificate=True)
    client = server.connect(peercert=certificate)
    client.send(LIVEZ, REVIEW[:size], REVIEW[size:])
    probed, (status, _, closes) = client.answers
    assert probed == (200, b"ok", False)
    assert (status, closes) == ((200, False) if certificate else (403, True))
    assert bool(server.handler.timings) is bool(certificate)


async def test_client_is_asked_for_the_body_that_it_expects_to_send(client: MemoryClient) -> None:
    request = post(b"review", "Expect: 100-continue")
    client.send(request[:-6])
    assert client.answers == [CONTINUE]
    client.send(request[-6:])
    assert client.answers == [ECHO]
    client.send(request, request[:-3], request[-3:])  # The body is there already.
    assert client.answers == [ECHO, ECHO]


async def test_answers_close_their_connections_with_the_goaway_chance() -> None:
    client = MemoryServer(goaway_chance=1).connect()
    client.send(REVIEW)
    assert client.answers == [LAST]
    assert client.transport.closed


@pytest.mark.parametrize(
    "request_", [REVIEW, post(LOOKUP), post(LONG), LIVEZ, REFUSED[404][0]], ids=len
)
async def test_answers_during_the_drain_close_their_connections(
    client: MemoryClient, server: MemoryServer, request_: bytes
) -> None:
    server.drain.start()
    server.handler.found.set()
    client.send(request_)
    await server.run()
    ((_, _, closes),) = client.answers
    assert closes
    assert client.transport.closed


async def test_deadline_comes_from_the_query(client: MemoryClient, server: MemoryServer) -> None:
    for query in ("?timeout=1s", "", f"?{'a' * 300}&timeout=1s"):
        client.send(post(b"review", path=f"/mutate{query}"))
    assert [t.deadline_seconds for t in server.handler.timings] == pytest.approx([0.7, 7, 7])


async def test_reviews_read_in_one_iteration_have_the_same_time(
    server: MemoryServer, clock: Clock
) -> None:
    clients = [server.connect() for _ in range(3)]
    for client in clients:
        clock.now += 1
        client.send(REVIEW)
    server.loop.iterate()
    clients[0].send(REVIEW)
    assert [timing.received_at for timing in server.handler.timings] == [1001, 1001, 1001, 1003]


async def test_date_is_that_of_the_second(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([1.1, 1.9, 2.0]).__next__
    monkeypatch.setattr("webhook.server.connections.protocol.time", clock)
    for second in (1, 1, 2):
        client.send(REVIEW)
        date = b"date: Thu, 01 Jan 1970 00:00:%02d GMT" % second
        assert client.transport.sent.split(b"\r\n")[1] == date
        client.transport.sent.clear()


@pytest.mark.parametrize("request_", [post(LOOKUP), post(b"be", length=9)], ids=["look-up", "body"])
async def test_date_of_a_late_answer_is_that_of_the_answer(
    client: MemoryClient, server: MemoryServer, monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    monkeypatch.setattr("webhook.server.connections.protocol.time", lambda: 100.0)
    client.send(request_)
    monkeypatch.setattr("webhook.server.connections.protocol.time", lambda: 200.0)
    server.handler.found.set()
    server.loop.iterate()
    if server.loop.timers:
        server.loop.expire(BODY_SECONDS)
    await server.run()
    assert b"\r\ndate: Thu, 01 Jan 1970 00:03:20 GMT\r\n" in client.transport.sent


@examples(100)
@given(
    bodies=st.lists(
        st.sampled_from([b"a", b"b" * 300, LOOKUP, b"c" * 20_000, LONG]), min_size=1, max_size=5
    ),
    cuts=st.lists(st.integers(0, 20_000), max_size=8),
    empty=st.sampled_from([b"", b"\r\n"]),
)
async def test_reviews_are_answered_the_same_however_they_are_cut(
    bodies: list[bytes], cuts: list[int], empty: bytes
) -> None:
    server = MemoryServer()
    client = server.connect()
    server.handler.found.set()
    for request in map(post, bodies):
        sent = empty + request + empty
        bounds = [0, *sorted(min(at, len(sent)) for at in cuts), len(sent)]
        client.send(*(sent[start:stop] for start, stop in pairwise(bounds)))
        await server.run()
    assert client.answers == [(200, b"echo:" + body, False) for body in bodies]
    assert server.budget.used_bytes == 0
    await lose(client, server)


@pytest.mark.parametrize("behind", [REVIEW, LIVEZ, REVIEW[:1], b"broken"])
@pytest.mark.parametrize("body", [b"review", LOOKUP, LONG], ids=len)
@pytest.mark.parametrize("pieces", [1, 7])
async def test_bytes_behind_a_review_close_the_connection_after_its_answer(
    client: MemoryClient, server: MemoryServer, behind: bytes, body: bytes, pieces: int
) -> None:
    sent = post(body)
    size = -(-len(sent) // pieces)
    *first, last = (sent[at : at + size] for at in range(0, len(sent), size))
    client.send(*first, last + behind)
    used_bytes = server.budget.used_bytes
    client.send(behind * 1000)
    assert server.budget.used_bytes == used_bytes
    server.handler.found.set()
    await server.run()
    assert client.answers == [(200, b"echo:" + body, True)]
    assert client.transport.closed
    assert len(server.handler.timings) == 1
    await lose(client, server)


# Memory


async def test_long_head_is_refused_if_the_memory_is_exhausted(
    client: MemoryClient, server: MemoryServer
) -> None:
    head = TOO_LONG[: DEFAULT_LIMITS.guaranteed_body_bytes]
    server.budget.used_bytes = server.budget.limit_bytes
    client.send(head)
    assert server.budget.used_bytes == server.budget.limit_bytes + len(head)
    client.send(b"y")
    ((status, _, closes),) = client.answers
    assert (status, closes) == (503, True)
    assert server.budget.used_bytes == server.budget.limit_bytes
    assert server.handler.refused == [503]


async def test_body_is_answered_early_if_the_memory_is_exhausted(
    client: MemoryClient, server: MemoryServer
) -> None:
    server.budget.limit_bytes = 20_000
    body = b"x" * 40_000
    client.send(post(body)[:-1000])
    assert client.answers == [(200, b"part:" + body[1000:], True)]
    client.send(body[-1000:])
    assert not client.answers
    await lose(client, server)


# Look-ups


async def test_review_that_needs_a_look_up_waits_in_a_task(server: MemoryServer) -> None:
    client = server.connect(peername=("10.0.0.7", 4711))
    client.send(post(LOOKUP))
    assert client.is_in(State.LOOKING_UP)
    assert server.loop.timers == []  # The handler has its own limit.
    assert server.budget.used_bytes == len(LOOKUP)
    assert server.shared.requests() == 1
    await server.run()
    assert not client.answers
    server.handler.found.set()
    await server.run()
    assert client.answers == [(200, b"echo:" + LOOKUP, False)]
    assert server.handler.clients == ["10.0.0.7"]
    assert client.is_in(State.IDLE)
    assert server.loop.timers == [IDLE]
    await lose(client, server)


async def test_look_up_ends_without_an_error_if_its_connection_ends(
    client: MemoryClient, server: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    aborted = server.connect()
    for each in (client, aborted):
        each.send(post(LOOKUP))
    await server.run()
    aborted.protocol._abort()
    server.handler.found.set()
    await asyncio.sleep(0)  # Both look-ups are complete before the loop reports the loss.
    assert server.handler.waiting == 0
    assert client.answers == [(200, b"echo:" + LOOKUP, False)]
    await lose(client, server)
    assert not aborted.answers
    assert not caplog.records


async def test_review_of_a_lost_connection_is_freed_without_the_garbage_collector() -> None:
    """The collector runs seldom, and what it has not yet freed is not in the budget."""
    server = MemoryServer()
    client = server.connect()
    client.send(post(LOOKUP))
    await server.run()
    gc.disable()
    try:
        client.transport.lose()
        await server.run()
        protocol = weakref.ref(server.protocols.pop())
        del client
        assert not server.loop.timers  # The list held a method of the protocol.
        assert protocol() is None
    finally:
        gc.enable()


async def test_look_up_that_is_cancelled_at_the_exit_is_no_error(
    client: MemoryClient, server: MemoryServer
) -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
    client.send(post(LOOKUP))
    await server.run()
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    task.cancel()
    await server.run()
    assert not errors
    await lose(client, server)


# Clients that do not read


@pytest.mark.parametrize("request_", [REVIEW, post(LONG), LAST_REVIEW, post(LOOKUP)], ids=len)
async def test_answer_is_held_until_the_client_reads(
    client: MemoryClient, server: MemoryServer, request_: bytes
) -> None:
    client.transport.capacity = 1
    server.handler.found.set()
    client.send(request_)
    await server.run()
    assert client.is_in(State.WRITING)
    assert not client.transport.closed
    assert server.loop.timers == [WRITE]
    assert server.shared.requests() == 1
    ((_, body, closes),) = client.answers
    assert server.budget.used_bytes == pytest.approx(len(body), abs=200)
    client.transport.read_all()
    assert server.budget.used_bytes == 0
    assert client.is_in(State.CLOSING if closes else State.IDLE)
    assert server.loop.timers == [WRITE if closes else IDLE]
    await lose(client, server)


async def test_look_up_goes_on_when_the_client_reads_an_earlier_answer(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.transport.capacity = 1
    client.send(post(b"", "Expect: 100-continue", length=len(LOOKUP)))  # The head has an answer.
    client.send(LOOKUP)
    client.transport.read_all()
    assert client.is_in(State.LOOKING_UP)
    server.handler.found.set()
    await server.run()
    assert client.answers == [CONTINUE, (200, b"echo:" + LOOKUP, False)]
    await lose(client, server)


async def test_connection_that_is_aborted_stays_closed_when_its_client_reads() -> None:
    server = MemoryServer(max_connections=1)
    slow = server.connect()
    slow.transport.capacity = 1
    slow.send(post(LONG))
    server.connect()
    slow.transport.read_all()
    assert slow.is_in(State.CLOSING)
    await server.run()
    assert server.loop.timers == [IDLE]
    assert server.budget.used_bytes == 0
    assert not slow.protocol.left_closing


# The number of connections


async def test_connections_above_the_limit_abort_those_with_the_oldest_answers() -> None:
    server = MemoryServer(max_connections=4)
    first, second, third, closing = clients = [server.connect() for _ in range(4)]
    for client in (closing, second, first):
        client.send(REVIEW)
    closing.send(LAST_REVIEW)
    # The third has had no answer since it was made. All of this is one iteration of the loop.
    for aborted in (closing, third, second, first):
        clients.append(server.connect())
        assert aborted.transport.aborted
        assert sum(client.transport.aborted for client in clients) == len(clients) - 4
        assert len(server.shared.connections) == 4
    await server.run()
    for client in clients[4:]:
        client.send(REVIEW)
        assert client.answers == [ECHO]
        client.transport.lose()
    server.check_released()


async def test_oldest_closing_connection_is_aborted_if_there_are_too_many() -> None:
    server = MemoryServer(max_closing=2)
    clients = [server.connect() for _ in range(5)]
    for client in clients[:4]:
        client.send(LAST_REVIEW)
        assert client.is_in(State.CLOSING)
    assert [client.transport.aborted for client in clients] == [True, True, False, False, False]
    clients[2].transport.lose()
    clients[4].send(LAST_REVIEW)
    assert not clients[3].transport.aborted


@pytest.mark.parametrize(
    ("first", "rest"), [(REVIEW[:-3], REVIEW[-3:]), (post(LOOKUP), b"")], ids=["body", "look-up"]
)
async def test_flood_of_idle_connections_ends_no_review(first: bytes, rest: bytes) -> None:
    server = MemoryServer()
    server.handler.found.set()
    honest = server.connect()
    honest.send(first)
    flood = [server.connect() for _ in range(server.limits.max_connections + 20)]
    assert [client.transport.aborted for client in flood] == [True] * 21 + [False] * 999
    honest.send(rest)
    await server.run()
    ((status, _, closes),) = honest.answers
    assert (status, closes) == (200, False)


async def test_flood_of_unfinished_bodies_leaves_new_clients_time_to_send() -> None:
    server = MemoryServer()
    limit = server.limits.max_connections

    def flood(count: int) -> None:
        for _ in range(count):
            server.connect().send(REVIEW[:-3])

    flood(limit)
    new = server.connect()
    flood(limit // 3)
    new.send(REVIEW)
    assert new.answers == [ECHO]
    flood(limit)
    assert new.transport.aborted  # When all of the older ones are busy, idle ones still end first.
    assert len(server.shared.connections) == limit


# The end of connections

UNFINISHED = {
    "idle": b"",
    "head": REVIEW[:20],
    "body": REVIEW[:-1],
    "look-up": post(LOOKUP),
    "closing": LAST_REVIEW,
}


@pytest.mark.parametrize("name", UNFINISHED)
async def test_shutdown_lets_each_client_close_or_finish(
    client: MemoryClient, server: MemoryServer, name: str
) -> None:
    begun = UNFINISHED[name]
    client.send(begun)
    server.handler.found.set()
    client.transport.sent.clear()
    server.shared.shutdown()
    await server.run()
    if name == "idle":
        assert client.answers == [CONTINUE]
        assert server.loop.timers == [SHUTDOWN_IDLE]
    if name in ("idle", "head", "body"):
        # The rest of a review that was on its way.
        assert not client.transport.closed
        client.send(REVIEW[len(begun) :])
    await server.run()
    assert [closes for _, _, closes in client.answers] == [True] * (name != "closing")
    assert client.transport.closed
    assert server.loop.timers == [WRITE]
    await lose(client, server)


@pytest.mark.parametrize("capacity", [None, 0], ids=["kept", "not writable"])
async def test_shutdown_ends_an_idle_connection_that_its_client_keeps(
    client: MemoryClient, server: MemoryServer, clock: Clock, capacity: int | None
) -> None:
    client.send(REVIEW)
    client.transport.capacity = capacity
    client.protocol.shutdown()
    clock.now += SHUTDOWN_IDLE
    server.loop.expire(SHUTDOWN_IDLE)
    assert client.transport.closed
    assert not client.transport.aborted
    assert server.loop.timers == [CLOSE]
    server.loop.expire(CLOSE)
    assert client.transport.aborted
    await server.run()
    server.check_released()
