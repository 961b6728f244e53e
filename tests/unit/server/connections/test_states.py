"""The states of a connection: what each event does, which timer runs, and what memory is held."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count, pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.memory_server import LOOKUP, MemoryClient, MemoryServer, post
from webhook.server.connections.protocol import MAX_CACHED_HEAD_BYTES, ServerClock, State
from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.reviews.http_answer import JSON_TYPE, HttpAnswer, refusal

IDLE = DEFAULT_LIMITS.idle_timeout_seconds
HEADER = DEFAULT_LIMITS.header_timeout_seconds
DRAIN_BODY = DEFAULT_LIMITS.drain_body_timeout_seconds
WRITE = DEFAULT_LIMITS.write_timeout_seconds
DELEGATED = DEFAULT_LIMITS.delegated_timeout_seconds
SHUTDOWN_IDLE = DEFAULT_LIMITS.shutdown_idle_timeout_seconds
CLOSE = DEFAULT_LIMITS.close_timeout_seconds
BODY = 5.0
"""The body timeout of the EchoHandler."""
PIPELINED = DEFAULT_LIMITS.max_pipelined_bytes
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
REVIEW = post(b"review")
ECHO = (200, b"echo:review", False)


@pytest.fixture
async def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
async def client(server: MemoryServer) -> MemoryClient:
    return server.connect()


def body_timer(server: MemoryServer) -> float:
    """Return the one timer that runs, if it is the body timeout without the time in the queue."""
    (seconds,) = server.loop.timers
    assert seconds is not None
    assert BODY - 1 < seconds <= BODY
    return seconds


async def lose(client: MemoryClient, server: MemoryServer) -> None:
    client.lose()
    await server.run()
    server.check_released()


# IDLE


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


async def test_idle_connection_is_closed_and_then_aborted(
    client: MemoryClient, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.send(REVIEW)
    server.loop.expire(IDLE)
    # The last request was a moment ago, so the timer has been started with the rest.
    (rest,) = server.loop.timers
    assert rest is not None
    assert IDLE - 60 < rest < IDLE
    assert client.is_in(State.IDLE)
    monkeypatch.setattr("webhook.server.connections.protocol.monotonic", lambda: 1e12)
    server.loop.expire(rest)
    assert client.is_in(State.CLOSING)
    assert client.transport.closed
    assert not client.transport.aborted
    assert server.loop.timers == [CLOSE]
    server.loop.expire(CLOSE)
    assert client.transport.aborted
    await lose(client, server)


async def test_empty_lines_are_not_activity(client: MemoryClient, server: MemoryServer) -> None:
    received_at = client.protocol._received_at
    client.send(b"\r\n", b"\r", b"\n\r\n")
    assert client.is_in(State.IDLE)
    assert client.protocol._received_at == received_at
    assert server.loop.timers == [IDLE]
    client.send(b"\r\n" + REVIEW, b"\r\n", REVIEW[:1], REVIEW[1:])
    assert client.answers == [ECHO, ECHO]


# HEAD


async def test_header_timeout_runs_from_the_first_byte_and_closes(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(REVIEW[:1])
    assert client.is_in(State.HEAD)
    assert server.loop.timers == [HEADER]
    timer = client.protocol._timer
    client.send(REVIEW[1:2], REVIEW[2:30])
    assert client.protocol._timer is timer
    server.loop.expire(HEADER)
    assert client.is_in(State.CLOSING)
    assert server.loop.timers == [CLOSE]
    assert server.budget.used_bytes == 0
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
    assert client.is_in(State.DISCARDING)
    client.send(b"y" * 5000)
    assert server.budget.used_bytes == 0
    assert server.loop.timers == [DRAIN_BODY]
    server.loop.expire(DRAIN_BODY)
    assert client.is_in(State.CLOSING)
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
    server.budget.limit_bytes = 0
    client.send(b"GET / HTTP/1.1\r\nx: " + b"y" * (DEFAULT_LIMITS.guaranteed_body_bytes - 100))
    assert client.is_in(State.HEAD)
    client.send(b"y" * 200)
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


@pytest.mark.parametrize("excess", [0, 1])
async def test_heads_of_any_permitted_length_are_answered(
    client: MemoryClient, excess: int
) -> None:
    filled = MAX_CACHED_HEAD_BYTES - len(post(b"", "X: ")) + 1 + excess
    request = post(b"review", "X: " + "x" * filled)
    assert request.index(b"\r\n\r\n") + 4 >= MAX_CACHED_HEAD_BYTES
    client.send(request, request[:700], request[700:])
    assert client.answers == [ECHO, ECHO]


async def test_upgrade_is_refused_and_its_body_discarded(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(b"", "Upgrade: h2c", length=len(LIVEZ)), LIVEZ[:5])
    ((status, body, closes),) = client.answers
    assert (status, closes) == (400, True)
    assert b"send no Upgrade header" in body
    assert client.is_in(State.DISCARDING)
    client.send(LIVEZ[5:])
    assert client.is_in(State.CLOSING)
    assert not client.answers
    assert not server.app.scopes


# BODY


async def test_rest_of_a_body_is_awaited_for_the_body_timeout(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(REVIEW[:-3])
    assert client.is_in(State.BODY)
    assert server.in_flight.requests == 1
    assert server.in_flight.reviews == 0
    body_timer(server)
    timer = client.protocol._timer
    client.send(REVIEW[-3:-1])
    assert client.protocol._timer is timer
    client.send(REVIEW[-1:])
    assert client.answers == [ECHO]
    assert client.is_in(State.IDLE)
    assert server.loop.timers == [IDLE]
    assert server.handler.bodies == []
    await lose(client, server)


async def test_incomplete_body_is_answered_early_and_its_rest_discarded(
    client: MemoryClient, server: MemoryServer
) -> None:
    # The rest of the body is a review, which is not a request.
    client.send(post(b"begin", length=5 + len(REVIEW)))
    before = client.protocol._received_at
    server.loop.expire(body_timer(server))
    assert client.is_in(State.WAITING)
    assert server.loop.timers == []
    await server.run()
    assert client.answers == [(200, b"echo:begin", False)]
    # The time spent waiting for the client does not count as queueing time.
    assert server.handler.timings[0].received_at > before
    assert client.is_in(State.DISCARDING)
    assert server.loop.timers == [DRAIN_BODY]
    timer = client.protocol._timer
    client.send(REVIEW[:20], REVIEW[20:-1])
    assert client.protocol._timer is timer
    client.send(REVIEW[-1:] + REVIEW)
    assert client.is_in(State.PIPELINED)
    await server.run()
    assert client.answers == [ECHO]
    assert client.is_in(State.IDLE)
    await lose(client, server)


async def test_connection_is_closed_if_the_rest_of_an_answered_body_does_not_arrive(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(REVIEW[:-1])
    server.loop.expire(body_timer(server))
    await server.run()
    server.loop.expire(DRAIN_BODY)
    assert client.is_in(State.CLOSING)
    client.send(REVIEW)
    assert len(client.answers) == 1
    await lose(client, server)


async def test_body_is_answered_early_if_the_memory_is_exhausted(
    client: MemoryClient, server: MemoryServer
) -> None:
    server.budget.limit_bytes = 20_000
    body = b"x" * 40_000
    client.send(post(body)[:-1000])
    assert client.is_in(State.WAITING)
    await server.run()
    ((status, _, closes),) = client.answers
    assert (status, closes) == (200, False)
    assert server.budget.used_bytes == 0
    client.send(body[-1000:])
    assert client.is_in(State.IDLE)


async def test_refusal_of_a_long_body_is_readable_while_the_client_still_sends(
    client: MemoryClient, server: MemoryServer
) -> None:
    length = 40 * 1024 * 1024
    client.send(post(b"", length=length))
    piece = b" " * (1024 * 1024)
    for _ in range(33):
        client.send(piece)
    await server.run()
    assert client.answers == [(413, b"too long\n", True)]
    assert client.is_in(State.DISCARDING)
    assert server.budget.used_bytes == 0
    for _ in range(7):
        assert not client.transport.closed
        client.send(piece)
    assert client.is_in(State.CLOSING)
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


# WAITING


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


async def test_task_is_cancelled_if_the_connection_is_lost(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(LOOKUP) + REVIEW)
    await server.run()
    assert server.budget.used_bytes == len(LOOKUP + REVIEW)
    await lose(client, server)
    assert server.handler.cancelled == 1
    assert not client.answers


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


async def test_reading_pauses_while_too_many_pipelined_bytes_wait(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(LOOKUP))
    client.send(b"\r\n" * (PIPELINED // 2))
    assert client.transport.reading
    client.send(REVIEW)
    assert not client.transport.reading
    # What the transport may hold while reading is paused counts as well.
    assert server.budget.used_bytes == len(LOOKUP + REVIEW) + PIPELINED + 512 * 1024
    server.handler.found.set()
    await server.run()
    assert client.transport.reading
    assert server.budget.used_bytes == 0
    assert client.answers == [(200, b"echo:" + LOOKUP, False), ECHO]
    await lose(client, server)


async def test_pipelined_requests_are_dropped_if_the_memory_is_exhausted(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(LOOKUP) + REVIEW)
    server.budget.limit_bytes = 0
    client.send(REVIEW)
    assert server.budget.used_bytes == len(LOOKUP)
    server.handler.found.set()
    await server.run()
    assert client.answers == [(200, b"echo:" + LOOKUP, True)]
    assert client.is_in(State.CLOSING)
    await lose(client, server)


# PIPELINED


async def test_pipelined_reviews_are_answered_in_order_one_in_each_iteration(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(b"".join(post(b"%d" % number) for number in range(4)))
    for number in range(4):
        assert client.answers == [(200, b"echo:%d" % number, False)]
        assert client.is_in(State.PIPELINED if number < 3 else State.IDLE)
        server.loop.iterate()
    assert server.loop.timers == [IDLE]
    await lose(client, server)


async def test_requests_behind_one_that_closes_are_not_begun(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(b"review", "Connection: close") + REVIEW + LIVEZ)
    await server.run()
    assert client.answers == [(200, b"echo:review", True)]
    assert client.transport.closed
    assert server.loop.timers == [WRITE]
    assert server.budget.used_bytes == 0
    assert not server.app.scopes


async def test_requests_behind_one_that_closes_occupy_no_memory(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(LOOKUP, "Connection: close"))
    used = server.budget.used_bytes
    client.send(REVIEW, REVIEW)
    assert server.budget.used_bytes == used


async def test_pipelined_review_does_not_count_the_time_behind_others_as_queueing(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(LOOKUP) + REVIEW)
    sent = client.protocol._received_at
    await server.run()
    server.handler.found.set()
    await server.run()
    assert server.handler.timings[-1].received_at > sent


@settings(deadline=None, max_examples=200)
@given(
    bodies=st.lists(
        st.sampled_from([b"a", b"b" * 300, LOOKUP, b"c" * 20_000]), min_size=1, max_size=6
    ),
    cuts=st.lists(st.integers(0, 20_000), max_size=8),
    empty=st.sampled_from([b"", b"\r\n"]),
)
async def test_stream_of_reviews_is_answered_the_same_however_it_is_cut(
    bodies: list[bytes], cuts: list[int], empty: bytes
) -> None:
    server = MemoryServer()
    client = server.connect()
    server.handler.found.set()
    stream = empty.join(map(post, bodies))
    bounds = [0, *sorted(min(at, len(stream)) for at in cuts), len(stream)]
    for start, stop in pairwise(bounds):
        client.send(stream[start:stop])
        if start % 2:
            await server.run()
    await server.run()
    assert client.answers == [(200, b"echo:" + body, False) for body in bodies]
    assert client.is_in(State.IDLE)
    assert server.budget.used_bytes == 0
    await lose(client, server)


# WRITING


async def test_nothing_is_written_while_writing_is_paused(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.transport.capacity = 1
    client.send(REVIEW)
    assert client.is_in(State.WRITING)
    assert server.loop.timers == [WRITE]
    assert server.in_flight.reviews == 1
    client.send(REVIEW, REVIEW)
    await server.run()
    assert client.transport.writes == 1
    client.transport.read_all()
    assert client.is_in(State.PIPELINED)
    await server.run()
    assert client.answers == [ECHO] * 3
    assert client.is_in(State.IDLE)
    assert server.loop.timers == [IDLE]
    await lose(client, server)


async def test_client_that_does_not_read_is_aborted_by_the_write_timeout(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.transport.capacity = 1
    client.send(post(b"x" * 200_000))
    assert server.budget.used_bytes > 200_000
    assert client.transport.writes == 1
    server.loop.expire(WRITE)
    assert client.transport.aborted
    await server.run()
    server.check_released()


async def test_long_answer_is_written_as_far_as_the_client_reads(
    client: MemoryClient, server: MemoryServer
) -> None:
    body = b"x" * 200_000
    client.transport.capacity = 1
    client.send(post(body) + REVIEW)
    used = server.budget.used_bytes
    for writes in (2, 3):
        client.transport.capacity = 1
        timer = client.protocol._write_timer
        client.transport.read_all()
        assert client.transport.writes == writes
        # Each read restarts the write timeout.
        assert client.protocol._write_timer is not timer
        assert server.loop.timers == [WRITE]
        # The answer counts against the budget until it is written.
        assert server.budget.used_bytes == used
    client.transport.read_all()
    await server.run()
    assert client.answers == [(200, b"echo:" + body, False), ECHO]
    await lose(client, server)


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


async def test_pause_while_idle_holds_back_the_next_answer(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.protocol.pause_writing()
    client.send(REVIEW)
    assert not client.transport.sent
    client.protocol.resume_writing()
    await server.run()
    assert client.answers == [ECHO]


async def test_pause_while_a_review_waits_holds_back_its_answer(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(LOOKUP))
    client.protocol.pause_writing()
    server.handler.found.set()
    await server.run()
    assert client.is_in(State.WRITING)
    assert not client.transport.sent
    client.protocol.resume_writing()
    assert client.answers == [(200, b"echo:" + LOOKUP, False)]


async def test_pause_before_a_pipelined_request_delays_it(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(REVIEW + REVIEW)
    client.protocol.pause_writing()
    await server.run()
    assert client.answers == [ECHO]
    assert client.is_in(State.WRITING)
    client.protocol.resume_writing()
    await server.run()
    assert client.answers == [ECHO]


# Closing


def in_idle(client: MemoryClient) -> None:
    client.send(REVIEW)


def in_head(client: MemoryClient) -> None:
    client.send(REVIEW[:20])


def in_body(client: MemoryClient) -> None:
    client.send(REVIEW[:-1])


def in_waiting(client: MemoryClient) -> None:
    client.send(post(LOOKUP) + b"x")


def in_writing(client: MemoryClient) -> None:
    client.transport.capacity = 1
    client.send(post(b"x" * 100_000) + b"x")


def in_pipelined(client: MemoryClient) -> None:
    client.send(REVIEW + REVIEW)


def in_discarding(client: MemoryClient) -> None:
    client.send(post(b"", "Upgrade: x", length=9))


def in_delegated(client: MemoryClient) -> None:
    client.send(post(b"be", path="/preview", length=9))


def in_closing(client: MemoryClient) -> None:
    client.send(post(b"x", "Connection: close"))


STATES = {
    State.IDLE: in_idle,
    State.HEAD: in_head,
    State.BODY: in_body,
    State.WAITING: in_waiting,
    State.WRITING: in_writing,
    State.PIPELINED: in_pipelined,
    State.DISCARDING: in_discarding,
    State.DELEGATED: in_delegated,
    State.CLOSING: in_closing,
}


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
@pytest.mark.parametrize("error", [None, ConnectionResetError()], ids=["closed", "broken"])
async def test_lost_connection_leaves_nothing_behind(
    client: MemoryClient, server: MemoryServer, state: State, error: Exception | None
) -> None:
    STATES[state](client)
    assert client.is_in(state)
    if state is not State.PIPELINED:
        await server.run()
    client.lose(error)
    await server.run()
    server.check_released()
    assert client.is_in(State.CLOSING)


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
async def test_every_state_ends_without_the_client(
    client: MemoryClient, server: MemoryServer, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timers alone end a connection whose client neither sends nor reads any more."""
    STATES[state](client)
    server.handler.found.set()
    monkeypatch.setattr("webhook.server.connections.protocol.monotonic", count(1e12, 1e6).__next__)
    for _ in range(10):
        await server.run()
        if client.transport.aborted:
            break
        (seconds,) = server.loop.timers
        assert seconds is not None
        server.loop.expire(seconds)
    assert client.transport.aborted
    await server.run()
    server.check_released()


def finish_head(client: MemoryClient) -> None:
    client.send(REVIEW[20:])


def finish_body(client: MemoryClient) -> None:
    client.send(REVIEW[-1:])


def finish_writing(client: MemoryClient) -> None:
    client.transport.read_all()


FINISH: dict[State, Callable[[MemoryClient], None]] = {
    State.HEAD: finish_head,
    State.BODY: finish_body,
    State.WRITING: finish_writing,
}
"""The other states need nothing from the client."""


@pytest.mark.parametrize(
    "state",
    [State.HEAD, State.BODY, State.WAITING, State.WRITING, State.PIPELINED],
    ids=lambda state: state.name,
)
async def test_shutdown_closes_after_the_request_that_has_begun(
    client: MemoryClient, server: MemoryServer, state: State
) -> None:
    STATES[state](client)
    client.protocol.shutdown()
    assert not client.transport.closed
    if state in FINISH:
        FINISH[state](client)
    server.handler.found.set()
    await server.run()
    assert client.transport.closed
    # An answer that was already begun cannot say so.
    assert client.answers[-1][2] is (state is not State.WRITING)


async def test_shutdown_lets_the_client_close_an_idle_connection(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(REVIEW)
    client.transport.sent.clear()
    client.protocol.shutdown()
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


async def test_connection_that_cannot_be_written_to_at_the_shutdown_is_aborted(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.transport.capacity = 0
    client.protocol.shutdown()
    assert client.is_in(State.WRITING)
    assert server.loop.timers == [WRITE]
    server.loop.expire(WRITE)
    assert client.transport.aborted
    await server.run()
    server.check_released()


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


@pytest.mark.parametrize(
    ("header", "limits"),
    [(b"Upgrade: h2c", {}), (b"X: y", {"max_delegated": 0}), (b"X: y", {"max_headers": 1})],
    ids=["upgrade", "too many requests", "too many headers"],
)
async def test_refused_chunked_request_is_discarded_up_to_its_end(
    header: bytes, limits: dict[str, Any]
) -> None:
    client = MemoryServer(**limits).connect()
    head = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n%b\r\n\r\n" % header
    client.send(head + b"5\r\nab")
    assert client.is_in(State.DISCARDING)
    assert client.answers[0][0] in (400, 503)
    client.send(b"cde\r\n0\r\n\r\n")
    assert client.is_in(State.CLOSING)


# Number of connections


async def test_connection_above_the_limit_closes_the_one_with_the_oldest_answer() -> None:
    server = MemoryServer(max_connections=3)
    first, second, third = (server.connect() for _ in range(3))
    for client in (second, first):
        client.send(REVIEW)
    # The third has had no answer since it was made, and the others have.
    fourth = server.connect()
    assert [c.transport.closed for c in (first, second, third, fourth)] == [0, 0, 1, 0]
    fifth = server.connect()
    assert second.transport.closed
    assert server.loop.timers.count(CLOSE) == 2
    for client in (first, fourth, fifth):
        client.send(REVIEW)
        assert len(client.answers) >= 1


@pytest.mark.parametrize(
    "state", [State.HEAD, State.BODY, State.WRITING, State.DISCARDING], ids=lambda s: s.name
)
async def test_slow_clients_do_not_lock_out_a_new_one(state: State) -> None:
    server = MemoryServer(max_connections=2)
    slow = [server.connect() for _ in range(2)]
    for client in slow:
        STATES[state](client)
        assert client.is_in(state)
    new = server.connect()
    new.send(REVIEW)
    assert new.answers == [ECHO]
    assert [client.transport.closed for client in slow] == [True, False]


async def test_oldest_closing_connection_is_aborted_if_there_are_too_many() -> None:
    server = MemoryServer(max_closing=2)
    clients = [server.connect() for _ in range(4)]
    for client in clients[:3]:
        client.send(post(b"review", "Connection: close"))
        assert client.is_in(State.CLOSING)
    assert [client.transport.aborted for client in clients] == [True, False, False, False]
    clients[1].lose()
    clients[3].send(post(b"review", "Connection: close"))
    assert not clients[2].transport.aborted


async def test_bytes_of_a_paused_connection_are_returned_when_it_is_lost(
    client: MemoryClient, server: MemoryServer
) -> None:
    client.send(post(LOOKUP) + REVIEW + b"\r\n" * (PIPELINED // 2))
    assert not client.transport.reading
    await lose(client, server)
    assert server.budget.used_bytes == 0


async def test_connections_whose_clients_wait_are_closed_last() -> None:
    server = MemoryServer(max_connections=3)
    waiting, delegated, slow = (server.connect() for _ in range(3))
    in_waiting(waiting)
    in_delegated(delegated)
    in_head(slow)
    new = server.connect()
    assert [c.transport.closed for c in (waiting, delegated, slow, new)] == [0, 0, 1, 0]
    in_waiting(new)
    last = server.connect()
    assert [c.transport.closed for c in (waiting, delegated, new, last)] == [1, 0, 0, 0]
    server.handler.found.set()
    await server.run()
    assert not waiting.answers
    assert new.answers[0] == (200, b"echo:" + LOOKUP, False)


async def test_delegated_connection_that_is_closed_for_another_stays_closed() -> None:
    server = MemoryServer(max_connections=1)
    delegated = server.connect()
    in_delegated(delegated)
    server.connect()
    assert delegated.transport.closed
    delegated.send(b"y" * 7)
    await server.run()
    assert server.app.disconnects == 1
    assert delegated.is_in(State.CLOSING)
    assert server.loop.timers.count(CLOSE) == 1
    assert len(server.uvicorn.connections) == 2


# Certificates


@pytest.mark.parametrize("certificate", [None, {"subject": ()}])
@pytest.mark.parametrize("first_bytes", [50, len(REVIEW)])
async def test_reviews_of_clients_without_a_required_certificate_are_delegated(
    certificate: dict[str, object] | None, first_bytes: int
) -> None:
    server = MemoryServer(needs_certificate=True)
    client = server.connect(peercert=certificate)
    client.send(REVIEW[:first_bytes], REVIEW[first_bytes:])
    await server.run()
    assert client.answers == [ECHO if certificate else (200, b"/mutate:review", True)]


# Time


async def test_clock_stands_still_until_all_clients_were_read(server: MemoryServer) -> None:
    clock = ServerClock(clock=count(1.0).__next__)
    loop = cast(asyncio.AbstractEventLoop, server.loop)
    assert [clock.now or clock.start(loop) for _ in range(2)] == [1, 1]
    server.loop.iterate()
    assert [clock.now or clock.start(loop) for _ in range(2)] == [2, 2]


async def test_reviews_read_in_one_iteration_have_the_same_time(server: MemoryServer) -> None:
    clients = [server.connect() for _ in range(3)]
    for client in clients:
        client.send(REVIEW)
    server.loop.iterate()
    clients[0].send(REVIEW)
    first, second, third, later = (timing.received_at for timing in server.handler.timings)
    assert first == second == third < later


async def test_date_header_follows_the_time(
    client: MemoryClient, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dates() -> list[bytes]:
        lines = bytes(client.transport.sent).split(b"\r\n")
        client.transport.sent.clear()
        return [line for line in lines if line.startswith(b"date: ")]

    def set_time(seconds: float) -> None:
        monkeypatch.setattr("webhook.server.connections.protocol.time", lambda: seconds)
        server.loop.iterate()

    set_time(0.9)
    client.send(REVIEW, post(LOOKUP))
    assert dates() == [b"date: Thu, 01 Jan 1970 00:00:00 GMT"]
    # The answer to a review that has waited has the date of the answer.
    set_time(61.1)
    server.handler.found.set()
    await server.run()
    assert dates() == [b"date: Thu, 01 Jan 1970 00:01:01 GMT"]


async def test_deadline_comes_from_the_query(client: MemoryClient, server: MemoryServer) -> None:
    for query in ("?timeout=1s", "", f"?{'a' * 300}&timeout=1s"):
        client.send(post(b"review", path=f"/mutate{query}"))
    assert [t.deadline_seconds for t in server.handler.timings] == pytest.approx([0.7, 7, 7])
