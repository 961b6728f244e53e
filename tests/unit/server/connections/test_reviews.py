"""Reviews on connections without sockets: what each event does, and what is held meanwhile."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from time import monotonic
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.manual_loop import ManualLoop
from tests.support.memory_server import LOOKUP, MemoryClient, MemoryServer, post
from webhook.server.connections.protocol import State
from webhook.server.connections.request_head import MAX_CACHED_HEAD_BYTES
from webhook.server.connections.server_clock import ServerClock
from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.reviews.http_answer import JSON_TYPE, HttpAnswer, refusal

IDLE = DEFAULT_LIMITS.idle_timeout_seconds
HEADER = DEFAULT_LIMITS.header_timeout_seconds
WRITE = DEFAULT_LIMITS.write_timeout_seconds
SHUTDOWN_IDLE = DEFAULT_LIMITS.shutdown_idle_timeout_seconds
CLOSE = DEFAULT_LIMITS.close_timeout_seconds
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
REVIEW = post(b"review")
PREVIEW = post(b"body12", path="/preview")
ECHO = (200, b"echo:review", False)


@pytest.fixture
async def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
async def client(server: MemoryServer) -> MemoryClient:
    return server.connect()


async def lose(client: MemoryClient, server: MemoryServer) -> None:
    client.lose()
    await server.run()
    server.check_released()


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
    assert server.handler.bodies == []
    await lose(client, server)


@pytest.mark.parametrize("pieces", [1, 1000])
async def test_head_above_the_limit_is_answered_400_which_the_client_can_read(
    server: MemoryServer, pieces: int
) -> None:
    server = MemoryServer(max_header_bytes=5000)
    client = server.connect()
    head = b"GET / HTTP/1.1\r\nx: " + b"y" * 5000
    size = len(head) // pieces
    client.send(*(head[at : at + size] for at in range(0, len(head), size)))
    assert client.answers == [(400, b"The headers are longer than 5000 bytes.", True)]
    # The client still sends. Its data is discarded until the timeout.
    client.send(b"y" * 5000)
    assert server.budget.used_bytes == 0
    assert server.loop.timers == [WRITE]
    await lose(client, server)


async def test_complete_head_above_the_limit_is_refused() -> None:
    server = MemoryServer(max_header_bytes=2000)
    client = server.connect()
    client.send(post(b"x", "x: " + "y" * 2000))
    ((status, _, closes),) = client.answers
    assert (status, closes) == (400, True)


async def test_long_head_is_refused_if_the_memory_is_exhausted(
    client: MemoryClient, server: MemoryServer
) -> None:
    long_head = b"GET / HTTP/1.1\r\nx: " + b"y" * (DEFAULT_LIMITS.guaranteed_body_bytes + 100)
    other = server.connect()
    other.send(long_head)
    assert other.is_in(State.RECEIVING)
    other.lose()
    server.budget.limit_bytes = 0
    client.send(long_head[:-200])
    assert client.is_in(State.RECEIVING)
    client.send(long_head[-200:])
    ((status, _, closes),) = client.answers
    assert (status, closes) == (503, True)
    assert server.budget.used_bytes == 0


@pytest.mark.parametrize("text", [b"\x16\x03\x01", b"GET / HTTP/1.1\nHost: x", b"NO\r\n"])
async def test_malformed_head_is_answered_400_before_its_end(
    client: MemoryClient, server: MemoryServer, text: bytes
) -> None:
    client.send(*(text[at : at + 1] for at in range(len(text))))
    assert client.answers == [(400, b"Invalid HTTP request received.", True)]
    assert client.is_in(State.CLOSING)
    await lose(client, server)


@pytest.mark.parametrize("path", ["/mutate", "/preview"])
@pytest.mark.parametrize("size", [9, 1000])
async def test_upgrade_is_refused_and_its_body_is_no_request(
    client: MemoryClient, server: MemoryServer, path: str, size: int
) -> None:
    request = post(REVIEW, "Connection: Upgrade", "Upgrade: h2c", path=path)
    client.send(*(request[at : at + size] for at in range(0, len(request), size)))
    ((status, text, closes),) = client.answers
    assert (status, closes) == (400, True)
    assert b"send no Upgrade header" in text
    assert client.transport.closed
    await server.run()
    assert not server.app.scopes
    assert not server.handler.timings


async def test_header_value_that_looks_like_a_review_is_no_request(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(b"GET /livez HTTP/1.1\r\nX: ", REVIEW)
    await server.run()
    assert client.answers == [(200, b"/livez:review", True)]
    assert not server.handler.timings


@pytest.mark.parametrize("excess", [0, 1])
async def test_heads_of_any_permitted_length_are_answered(
    client: MemoryClient, excess: int
) -> None:
    filled = MAX_CACHED_HEAD_BYTES - len(post(b"", "X: ")) + 1 + excess
    request = post(b"review", "X: " + "x" * filled)
    assert request.index(b"\r\n\r\n") + 4 >= MAX_CACHED_HEAD_BYTES
    client.send(request, request[:700], request[700:])
    assert client.answers == [ECHO, ECHO]


async def test_body_above_the_limit_is_refused_before_its_end(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(b"", length=40 * 1024 * 1024))
    piece = b" " * (1024 * 1024)
    client.send(*([piece] * 33))
    await server.run()
    assert client.answers == [(413, b"too long\n", True)]
    assert client.transport.closed
    assert server.budget.used_bytes == 0
    await lose(client, server)


async def test_long_complete_body_is_left_to_the_task(
    client: MemoryClient, server: MemoryServer
) -> None:
    body = b"x" * (256 * 1024 + 1)
    for request in (post(body), post(body[1:])):
        client.send(request)
        await server.run()
    assert [len(body) for _, body, _ in client.answers] == [len(body) + 5, len(body) + 4]
    assert server.handler.bodies == [body]


async def test_look_up_counts_for_the_address_of_the_client(server: MemoryServer) -> None:
    client = server.connect(peername=("10.0.0.7", 4711))
    client.send(post(LOOKUP))
    await server.run()
    assert server.handler.clients == ["10.0.0.7"]
    await lose(client, server)


async def test_review_that_needs_a_look_up_waits_in_a_task(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(LOOKUP))
    assert client.is_in(State.WAITING)
    assert server.loop.timers == []
    assert server.in_flight.requests == 1
    (task,) = server.uvicorn.tasks
    await server.run()
    assert not task.done()
    server.handler.found.set()
    await server.run()
    assert client.answers == [(200, b"echo:" + LOOKUP, False)]
    assert server.handler.bodies == [LOOKUP]
    assert not server.uvicorn.tasks
    assert client.is_in(State.IDLE)
    assert server.loop.timers == [IDLE]
    await lose(client, server)


async def test_task_that_is_cancelled_at_the_exit_aborts_its_connection(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(LOOKUP))
    await server.run()
    (task,) = server.uvicorn.tasks
    task.cancel()
    await server.run()
    assert client.transport.aborted
    server.check_released()


async def test_internal_error_of_the_handler_is_answered_500_and_logged(
    client: MemoryClient, server: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.handler.answers = iter([ValueError("a defect")])
    server.handler.found.set()
    client.send(post(LOOKUP))
    await server.run()
    assert client.answers == [(500, b"Internal Server Error", True)]
    assert client.is_in(State.CLOSING)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    await lose(client, server)


async def test_client_that_does_not_read_is_aborted_by_the_write_timeout(
    client: MemoryClient, server: MemoryServer
) -> None:
    assert client.transport.write_limits == (DEFAULT_LIMITS.write_high_water_bytes, None)
    client.transport.capacity = 1
    client.send(post(b"x" * 200_000))
    assert server.budget.used_bytes > 200_000
    assert client.transport.writes == 1
    server.loop.expire(WRITE)
    assert client.transport.aborted
    await server.run()
    server.check_released()


async def test_answer_that_closes_is_written_completely_before_the_end(
    client: MemoryClient, server: MemoryServer
) -> None:
    body = b"x" * 200_000
    client.transport.capacity = 1
    client.send(post(body, "Connection: close"))
    assert not client.transport.closed
    client.transport.read_all()
    assert client.answers == [(200, b"echo:" + body, True)]
    assert client.is_in(State.CLOSING)
    assert server.loop.timers == [WRITE]
    server.loop.expire(WRITE)
    assert client.transport.aborted


async def test_shutdown_lets_the_client_close_an_idle_connection(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(REVIEW)
    client.transport.sent.clear()
    (connection,) = server.uvicorn.connections
    connection.shutdown()
    assert client.transport.sent == CONTINUE
    assert not client.transport.closed
    assert server.loop.timers == [SHUTDOWN_IDLE]
    await lose(client, server)


async def test_shutdown_closes_an_idle_connection_and_aborts_it_if_the_client_stays(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(REVIEW)
    client.protocol.shutdown()
    server.loop.expire(SHUTDOWN_IDLE)
    assert client.transport.closed
    assert server.loop.timers == [CLOSE]
    server.loop.expire(CLOSE)
    assert client.transport.aborted
    await server.run()
    server.check_released()


@pytest.mark.parametrize("request_", [REVIEW, post(LOOKUP)], ids=["review", "look-up"])
@pytest.mark.parametrize("length", [1, None], ids=["in-two-pieces", "in-one-piece"])
async def test_review_that_arrives_after_the_shutdown_is_answered(
    client: MemoryClient, server: MemoryServer, request_: bytes, length: int | None
) -> None:
    client.send(REVIEW)
    assert client.answers
    client.protocol.shutdown()
    client.send(request_[:length], request_[len(request_[:length]) :])
    server.handler.found.set()
    await server.run()
    # The client ignores the informational response.
    informational, (status, _, closes) = client.answers
    assert informational == (100, b"", False)
    assert (status, closes) == (200, True)
    assert client.transport.closed


async def test_shutdown_sends_nothing_to_a_client_with_a_request_in_progress(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(LOOKUP))
    client.protocol.shutdown()
    assert not client.transport.sent
    await lose(client, server)


async def test_answers_during_the_drain_close_their_connections(server: MemoryServer) -> None:
    server.drain.start()
    server.handler.found.set()
    for request in (REVIEW, post(LOOKUP), post(b"x" * 100_000)):
        client = server.connect()
        client.send(request)
        await server.run()
        ((status, _, closes),) = client.answers
        assert (status, closes) == (200, True)
        assert client.transport.closed


async def test_refusals_during_the_drain_close_their_connections(server: MemoryServer) -> None:
    server.drain.start()
    server.handler.found.set()
    server.handler.answers = iter([refusal(400, "no review", close=False)])
    client = server.connect()
    client.send(post(LOOKUP))
    await server.run()
    assert client.answers == [(400, b"no review\n", True)]
    assert client.transport.closed


async def test_answers_close_their_connections_with_the_goaway_chance() -> None:
    server = MemoryServer(goaway_chance=1)
    client = server.connect()
    client.send(REVIEW)
    assert client.answers == [(200, b"echo:review", True)]
    assert client.transport.closed


async def test_refusal_of_the_handler_keeps_the_connection_unless_it_says_otherwise(
    server: MemoryServer,
) -> None:
    server.handler.found.set()
    for close in (False, True):
        server.handler.answers = iter([refusal(400, "no review", close=close)])
        client = server.connect()
        client.send(post(LOOKUP))
        await server.run()
        assert client.answers == [(400, b"no review\n", close)]
        assert client.transport.closed is close
    server.handler.answers = iter([HttpAnswer(200, b"{}", JSON_TYPE, close=True)])
    client = server.connect()
    client.send(post(LOOKUP))
    await server.run()
    assert client.answers == [(200, b"{}", True)]


async def test_connection_above_the_limit_closes_the_one_with_the_oldest_answer() -> None:
    server = MemoryServer(max_connections=3)
    first, second, third = (server.connect() for _ in range(3))
    second.send(REVIEW)
    first.send(post(b"x" * 100_000))
    # The third has had no answer since it was made, and the others have.
    fourth = server.connect()
    assert [c.transport.closed for c in (first, second, third, fourth)] == [0, 0, 1, 0]
    fifth = server.connect()
    assert second.transport.closed
    assert server.loop.timers.count(CLOSE) == 2
    for client in (first, fourth, fifth):
        client.send(REVIEW)
        assert len(client.answers) >= 1


async def test_closed_connection_stays_closed_when_its_client_reads_a_long_answer() -> None:
    server = MemoryServer(max_connections=1)
    slow = server.connect()
    slow.transport.capacity = 0
    slow.send(post(b"x" * 200_000))
    await server.run()
    assert slow.is_in(State.WAITING)
    server.connect()
    assert slow.is_in(State.CLOSING)
    assert server.budget.used_bytes == 0
    written = len(slow.transport.sent)
    slow.transport.read_all()
    assert slow.is_in(State.CLOSING)
    assert len(slow.transport.sent) == written
    assert sorted(filter(None, server.loop.timers)) == [CLOSE, IDLE]


async def test_oldest_closing_connection_is_aborted_if_there_are_too_many() -> None:
    server = MemoryServer(max_closing=2)
    clients = [server.connect() for _ in range(5)]
    for client in clients[:4]:
        client.send(post(b"review", "Connection: close"))
        assert client.is_in(State.CLOSING)
    assert [client.transport.aborted for client in clients] == [True, True, False, False, False]
    clients[2].lose()
    clients[4].send(post(b"review", "Connection: close"))
    assert not clients[3].transport.aborted


async def test_reviews_read_in_one_iteration_have_the_same_time(server: MemoryServer) -> None:
    clients = [server.connect() for _ in range(3)]
    for client in clients:
        client.send(REVIEW)
    server.loop.iterate()
    clients[0].send(REVIEW)
    first, second, third, later = (timing.received_at for timing in server.handler.timings)
    assert first == second == third < later


def test_date_is_that_of_the_second() -> None:
    clock = ServerClock(wall_clock=iter([1.1, 1.9, 2.0]).__next__)
    seconds = []
    for _ in range(3):
        clock.start(cast(asyncio.AbstractEventLoop, ManualLoop()))
        assert b"\r\ndate: %b\r\n" % clock.date in clock.json_head
        seconds.append(clock.date[-6:])
    assert seconds == [b"01 GMT", b"01 GMT", b"02 GMT"]


async def test_date_of_an_answer_after_a_look_up_is_that_of_the_answer() -> None:
    server = MemoryServer(wall_clock=iter([100.0, 200.0]).__next__)
    client = server.connect()
    client.send(post(LOOKUP))
    server.handler.found.set()
    await server.run()
    assert b"\r\ndate: Thu, 01 Jan 1970 00:03:20 GMT\r\n" in client.transport.sent


async def test_deadline_comes_from_the_query(client: MemoryClient, server: MemoryServer) -> None:
    for query in ("?timeout=1s", "", f"?{'a' * 300}&timeout=1s"):
        client.send(post(b"review", path=f"/mutate{query}"))
    assert [t.deadline_seconds for t in server.handler.timings] == pytest.approx([0.7, 7, 7])


async def test_silent_clients_are_closed_and_then_aborted(server: MemoryServer) -> None:
    for first, seconds in ((b"", IDLE), (REVIEW[:1], HEADER), (REVIEW[:30], HEADER)):
        server = MemoryServer(idle_timeout_seconds=0) if not first else MemoryServer()
        client = server.connect()
        client.send(first)
        server.loop.expire(0 if not first else seconds)
        assert client.transport.closed
        assert not client.transport.aborted
        assert server.budget.used_bytes == 0
        server.loop.expire(CLOSE)
        assert client.transport.aborted
        await server.run()
        server.check_released()


@pytest.mark.parametrize(
    "request_", [REVIEW[:3], REVIEW[:-3], PREVIEW[:-3]], ids=["head", "body", "handed over"]
)
async def test_further_bytes_extend_no_timeout(
    client: MemoryClient, server: MemoryServer, request_: bytes
) -> None:
    client.send(request_[:-2])
    started = server.loop.timers_started
    client.send(request_[-2:-1], request_[-1:])
    assert server.loop.timers_started == started
    assert len(server.loop.timers) == 1


@pytest.mark.parametrize(("data", "is_extended"), [(REVIEW, True), (b"\r\n", False)])
async def test_idle_timeout_counts_from_the_last_review(
    client: MemoryClient, server: MemoryServer, data: bytes, is_extended: bool
) -> None:
    server.shared.clock.now = monotonic() + 100
    client.send(data)
    server.loop.expire(IDLE)
    assert not client.transport.closed
    (seconds,) = server.loop.timers
    assert seconds is not None
    assert (seconds > IDLE) is is_extended


async def test_time_in_the_queue_is_a_part_of_the_body_timeout(
    client: MemoryClient, server: MemoryServer
) -> None:
    server.shared.clock.now = monotonic() - 2
    client.send(post(b"begin", length=10))
    (seconds,) = server.loop.timers
    assert seconds is not None
    assert seconds <= 3


async def test_empty_lines_between_reviews_are_ignored(client: MemoryClient) -> None:
    client.send(b"\r\n", b"\r", b"\n\r\n", b"\r\n" + REVIEW, b"\r\n", REVIEW + b"\r\n", REVIEW)
    assert client.answers == [ECHO] * 3
    assert not client.transport.closed


async def test_incomplete_body_is_answered_at_its_deadline_and_closes(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(b"begin", length=5 + len(REVIEW)))
    assert (server.in_flight.requests, server.in_flight.reviews) == (1, 0)
    (seconds,) = server.loop.timers
    assert seconds is not None
    assert 4 < seconds <= 5
    expired_at = monotonic()
    server.loop.expire(seconds)
    await server.run()
    # The client's time does not count as time in the queue.
    assert server.handler.timings[-1].received_at >= expired_at
    assert client.answers == [(200, b"echo:begin", True)]
    assert client.transport.closed
    # The rest of the body is a review, which is not a request.
    client.send(REVIEW)
    assert not client.answers
    await lose(client, server)


async def test_body_is_answered_early_if_the_memory_is_exhausted(
    client: MemoryClient, server: MemoryServer
) -> None:
    server.budget.limit_bytes = 20_000
    client.send(post(b"x" * 40_000)[:-1000])
    await server.run()
    ((status, _, closes),) = client.answers
    assert (status, closes) == (200, True)
    assert server.budget.used_bytes == 0
    await lose(client, server)


@settings(deadline=None, max_examples=100)
@given(
    bodies=st.lists(
        st.sampled_from([b"a", b"b" * 300, LOOKUP, b"c" * 20_000]), min_size=1, max_size=5
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
        sent = empty + request
        bounds = [0, *sorted(min(at, len(sent)) for at in cuts), len(sent)]
        client.send(*(sent[start:stop] for start, stop in pairwise(bounds)))
        await server.run()
    assert client.answers == [(200, b"echo:" + body, False) for body in bodies]
    assert server.budget.used_bytes == 0
    await lose(client, server)


# Bytes behind a review


@pytest.mark.parametrize("behind", [REVIEW, LIVEZ, REVIEW[:1], b"broken"])
@pytest.mark.parametrize("body", [b"review", LOOKUP, b"x" * 300_000])
@pytest.mark.parametrize("pieces", [1, 7])
async def test_bytes_behind_a_review_close_the_connection_after_its_answer(
    client: MemoryClient, server: MemoryServer, behind: bytes, body: bytes, pieces: int
) -> None:
    sent = post(body)
    size = -(-len(sent) // pieces)
    *first, last = (sent[at : at + size] for at in range(0, len(sent), size))
    client.send(*first, last + behind)
    client.send(behind)
    server.handler.found.set()
    await server.run()
    assert client.answers == [(200, b"echo:" + body, True)]
    assert client.transport.closed
    assert not server.app.scopes
    assert server.budget.used_bytes == 0
    await lose(client, server)


async def test_bytes_during_a_look_up_close_the_connection_and_occupy_no_memory(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(LOOKUP))
    used_bytes = server.budget.used_bytes
    client.send(b"\r\n", REVIEW * 1000)
    assert server.budget.used_bytes == used_bytes
    server.handler.found.set()
    await server.run()
    assert client.answers == [(200, b"echo:" + LOOKUP, True)]
    await lose(client, server)


# Clients that do not read


async def test_answer_waits_until_the_client_reads(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.transport.capacity = 1
    client.send(REVIEW)
    assert client.answers == [ECHO]
    assert sorted(filter(None, server.loop.timers)) == [WRITE, IDLE]
    client.send(REVIEW)
    assert not client.answers
    assert server.in_flight.reviews == 1
    client.transport.read_all()
    assert client.answers == [ECHO]
    assert server.loop.timers == [IDLE]
    assert server.in_flight.reviews == 0
    await lose(client, server)


async def test_long_answer_is_written_as_far_as_the_client_reads(
    client: MemoryClient, server: MemoryServer
) -> None:
    body = b"x" * 200_000
    client.transport.capacity = 1
    client.send(post(body))
    used_bytes = server.budget.used_bytes
    assert used_bytes > len(body)
    for writes in (2, 3):
        client.transport.capacity = 1
        client.transport.read_all()
        assert client.transport.writes == writes
        assert server.loop.timers == [WRITE]
        # The answer counts against the budget until it is written.
        assert server.budget.used_bytes == used_bytes
    client.transport.read_all()
    assert client.answers == [(200, b"echo:" + body, False)]
    await lose(client, server)


# The end of a connection


UNFINISHED = {
    "idle": b"",
    "head": REVIEW[:20],
    "body": REVIEW[:-1],
    "look-up": post(LOOKUP) + b"x",
    "closing": post(b"x", "Connection: close"),
    "handed over": post(b"be", path="/preview", length=9),
}


@pytest.mark.parametrize("sent", UNFINISHED.values(), ids=UNFINISHED)
@pytest.mark.parametrize("error", [None, ConnectionResetError()], ids=["closed", "broken"])
async def test_lost_connection_leaves_nothing_behind(
    client: MemoryClient, server: MemoryServer, sent: bytes, error: Exception | None
) -> None:
    client.send(sent)
    await server.run()
    client.lose(error)
    await server.run()
    server.check_released()


@pytest.mark.parametrize("name", ["head", "body", "look-up"])
async def test_shutdown_closes_after_the_request_that_has_begun(
    client: MemoryClient, server: MemoryServer, name: str
) -> None:
    client.send(UNFINISHED[name])
    client.protocol.shutdown()
    assert not client.transport.closed
    assert not client.transport.sent
    if name != "look-up":
        client.send(REVIEW[len(UNFINISHED[name]) :])
    server.handler.found.set()
    await server.run()
    ((status, _, closes),) = client.answers
    assert (status, closes) == (200, True)
    assert client.transport.closed


async def test_connection_that_cannot_be_written_to_at_the_shutdown_is_aborted(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.transport.capacity = 0
    client.protocol.shutdown()
    server.loop.expire(WRITE)
    assert client.transport.aborted
    await server.run()
    server.check_released()


@pytest.mark.parametrize("name", ["head", "body"])
async def test_slow_clients_do_not_lock_out_a_new_one(name: str) -> None:
    server = MemoryServer(max_connections=2)
    slow = [server.connect() for _ in range(2)]
    for client in slow:
        client.send(UNFINISHED[name])
    new = server.connect()
    new.send(REVIEW)
    assert new.answers == [ECHO]
    assert [client.transport.closed for client in slow] == [True, False]


async def test_connections_whose_clients_wait_are_closed_last() -> None:
    server = MemoryServer(max_connections=2)
    waiting, slow = server.connect(), server.connect()
    waiting.send(post(LOOKUP))
    slow.send(REVIEW[:20])
    new = server.connect()
    assert [c.transport.closed for c in (waiting, slow, new)] == [False, True, False]
    new.send(post(LOOKUP))
    last = server.connect()
    assert [c.transport.closed for c in (waiting, new, last)] == [True, False, False]
    server.handler.found.set()
    await server.run()
    assert not waiting.answers
    assert new.answers == [(200, b"echo:" + LOOKUP, False)]


@pytest.mark.parametrize("certificate", [None, {"subject": ()}])
@pytest.mark.parametrize("first_bytes", [50, len(REVIEW)])
async def test_review_of_a_client_without_a_required_certificate_is_handed_over(
    certificate: dict[str, object] | None, first_bytes: int
) -> None:
    server = MemoryServer(needs_certificate=True)
    client = server.connect(peercert=certificate)
    client.send(REVIEW[:first_bytes], REVIEW[first_bytes:])
    await server.run()
    assert client.answers == [ECHO if certificate else (200, b"/mutate:review", True)]
