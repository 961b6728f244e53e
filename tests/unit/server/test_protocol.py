"""The fast path of the protocol, and the requests that it leaves to the application."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.support.http_client import mutate, review_in
from tests.support.protocol_server import (
    POD,
    REVIEW,
    WHOLE,
    Served,
    Start,
    is_settled,
    review_with_uid,
    uid_in,
)
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that
from webhook.server.admission import ReviewHandler, ReviewTiming
from webhook.server.protocol import LoopTick
from webhook.server.request_head import HEAD_END, MAX_CACHED_HEAD_BYTES
from webhook.server.review_request import answer_seconds

# Equal answers on both paths


@pytest.mark.parametrize("path", PODS, ids=lambda path: path.stem)
def test_both_paths_give_the_same_answer(served: Served, path: Path) -> None:
    request = mutate(review(load_pod(path)))
    client = served.connect()
    client.send(request)
    whole = client.answer()
    # A request longer than a TLS record may be read in parts.
    assert served.slow_path.requests == 0 or len(request) > 16_000
    before = served.slow_path.requests
    served.send_in_two(client, request)
    parted = client.answer()
    assert served.slow_path.requests == before + 1
    assert review_in(whole)
    assert whole.body == parted.body  # type: ignore[attr-defined]
    assert (whole.status, whole.reason, whole.version) == (parted.status, "OK", parted.version)
    names = [[name for name, _ in answer.getheaders()] for answer in (whole, parted)]
    assert names[0] == names[1] == ["date", "content-type", "content-length"]
    assert whole.getheader("content-type") == parted.getheader("content-type")


def test_both_paths_count_and_log_the_same(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = served.connect()
    requests = [WHOLE, mutate(review({}, namespace="ci", object=1)), mutate(b"{}" + b" " * 100)]

    def logged() -> list[str]:
        lines = "\n".join(
            r.getMessage() for r in caplog.records if r.name == "webhook.server.review_log"
        )
        return lines.splitlines()

    def grown(send: Callable[[bytes], None]) -> dict[str, float]:
        before, lines, reviews = served.metrics(), len(logged()), served.reviews
        for request in requests:
            send(request)
            client.answer()
        await_that(lambda: len(logged()) > lines, "the review log is flushed")
        assert len(logged()) == lines + 1
        assert served.reviews == reviews + len(requests)
        after = served.metrics()
        return {
            name: after[name] - before.get(name, 0)
            for name in after
            if after[name] != before.get(name, 0) and "duration_seconds_" not in name
        } | {"timed": after[timed] - before[timed]}

    timed = "podsettle_review_duration_seconds_count"
    on_fast_path = grown(client.send)
    assert served.slow_path.requests == 1  # for the body without a review
    on_slow_path = grown(lambda request: served.send_in_two(client, request))
    assert served.slow_path.requests == 1 + len(requests)
    assert on_fast_path == on_slow_path
    assert on_fast_path["timed"] == 2
    assert on_fast_path['podsettle_reviews_total{result="patched"}'] == 1
    assert on_fast_path['podsettle_reviews_total{result="unchanged"}'] == 1
    assert on_fast_path['podsettle_requests_refused_total{status="400"}'] == 1


# Answered on the fast path


@pytest.mark.parametrize(
    "target", ["/mutate", "/mutate/", "/mutate?timeout=10s", "https://x/mutate?timeout=1s"]
)
def test_fast_path_answers_whole_review(served: Served, target: str) -> None:
    client = served.connect()
    for _ in range(3):
        client.send(WHOLE.replace(b"/mutate", target.encode(), 1))
        assert "patch" in review_in(client.answer())
    assert served.slow_path.requests == 0
    assert served.reviews == 3
    assert served.connections[0].server_state.total_requests == 3


def test_fast_path_answers_review_with_an_internal_error(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.source.view = replace(served.source.view, runtime_classes=None)
    client = served.connect()
    client.send(mutate(review(POD)))
    assert "InternalError" in review_in(client.answer())["warnings"][0]
    assert served.slow_path.requests == 0
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    assert served.metrics()['podsettle_outcomes_total{reason="InternalError",remedy=""}'] == 1


def test_fast_path_answers_review_whose_body_follows_its_headers(start: Start) -> None:
    served = start(body_wait_seconds=60)
    client = served.connect()
    for _ in range(2):
        client.send(WHOLE[:300])
        await_that(lambda: served.connections[-1]._body_timer is not None, "the head was read")
        client.send(WHOLE[300:])
        assert "patch" in review_in(client.answer())
        assert served.connections[-1]._body_timer is None
    assert served.slow_path.requests == 0


def test_empty_lines_between_reviews_are_ignored(served: Served) -> None:
    client = served.connect()
    client.send(b"\r\n" + review_with_uid(0))
    assert uid_in(client.answer()) == "0"
    client.send(b"\r\n")
    client.send(review_with_uid(1))
    assert uid_in(client.answer()) == "1"
    assert client.get("/livez").status == 200
    client.send(review_with_uid(2))
    assert uid_in(client.answer()) == "2"
    assert served.slow_path.requests == 0


def test_deadline_comes_from_the_query(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    handle_now = ReviewHandler.handle_now
    given: list[float] = []

    def note(self: ReviewHandler, body: bytes, timing: ReviewTiming) -> bytes | None:
        given.append(timing.deadline_seconds)
        return handle_now(self, body, timing)

    monkeypatch.setattr(ReviewHandler, "handle_now", note)
    client = start().connect()
    for query in ("?timeout=1s", "", f"?{'a' * 300}&timeout=1s"):
        client.send(mutate(REVIEW, query))
        assert "patch" in review_in(client.answer())
    assert given == pytest.approx([0.7, 7, 7])
    assert answer_seconds(b"a" * 300 + b"&timeout=1s") == 7


@pytest.mark.parametrize("too_long", [False, True])
def test_fast_path_parses_heads_up_to_a_maximum_length(served: Served, too_long: bool) -> None:
    head, body = WHOLE.split(HEAD_END)
    filled = MAX_CACHED_HEAD_BYTES - len(head + HEAD_END) - len(b"\r\nX: ") + too_long
    client = served.connect()
    client.send(head + b"\r\nX: " + b"x" * filled + HEAD_END + body)
    assert "patch" in review_in(client.answer())
    assert served.slow_path.requests == too_long


def test_review_that_begins_stops_the_keep_alive_timer(start: Start) -> None:
    served = start(body_wait_seconds=60)
    client = served.connect()
    assert client.get("/livez").status == 200
    (connection,) = served.connections
    assert connection.timeout_keep_alive_task is not None
    client.send(WHOLE[:300])
    await_that(lambda: connection._body_timer is not None, "the head was read")
    assert connection.timeout_keep_alive_task is None
    client.send(WHOLE[300:])
    assert "patch" in review_in(client.answer())


# Idle connections


def test_idle_check_leaves_used_connection_open(served: Served) -> None:
    client = served.connect()
    assert is_settled(client)
    (connection,) = served.connections
    before = connection._idle_timer
    connection.loop.call_soon_threadsafe(connection._close_if_idle)
    await_that(lambda: connection._idle_timer is not before, "the idle check has run")
    assert not connection.transport.is_closing()
    assert is_settled(client)


def test_idle_timeout_applies_after_fast_path_reviews(start: Start) -> None:
    served = start(idle_timeout_seconds=3)
    idle, noisy, slow = (served.connect() for _ in range(3))
    for client in (idle, noisy):
        client.send(WHOLE)
        review_in(client.answer())
    assert served.slow_path.requests == 0
    noisy.send("\r\n")
    # A request that began in the same segment as the end of another keeps its connection.
    slow.send(WHOLE + review_with_uid(1)[:-100])
    review_in(slow.answer())
    assert idle.is_closed()
    assert noisy.is_closed()
    slow.send(review_with_uid(1)[-100:])
    assert uid_in(slow.answer()) == "1"


# Clients that do not read


def test_reading_stays_paused_while_pipelined_requests_wait(served: Served) -> None:
    client = served.connect()
    assert is_settled(client)
    (connection,) = served.connections
    refused = threading.Event()

    def resume() -> None:
        connection.pipeline.append((connection.cycle, connection.app))
        connection.flow.pause_reading()
        connection.flow.resume_reading()
        assert connection.flow.read_paused
        connection.pipeline.clear()
        connection.flow.resume_reading()
        assert not connection.flow.read_paused
        refused.set()

    connection.loop.call_soon_threadsafe(resume)
    assert refused.wait(30)


def test_fast_path_is_not_used_while_the_client_does_not_read(served: Served) -> None:
    client = served.connect()
    assert is_settled(client)
    (connection,) = served.connections
    connection.loop.call_soon_threadsafe(connection.pause_writing)
    await_that(lambda: connection.flow.write_paused, "writing is paused")
    assert connection._write_timer is not None
    client.send(review_with_uid(1))
    await_that(lambda: served.server.components.in_flight.requests, "the application has it")
    client.send(review_with_uid(2))
    await_that(lambda: connection.flow.read_paused, "reading is paused")
    connection.loop.call_soon_threadsafe(connection.resume_writing)
    await_that(lambda: connection._write_timer is None, "the write timeout is cancelled")
    assert [uid_in(client.answer()) for _ in range(2)] == ["1", "2"]
    assert is_settled(client)


# Queueing


async def test_loop_tick_lasts_until_all_clients_were_read() -> None:
    loop, present = asyncio.get_running_loop(), LoopTick(clock=count(1).__next__)
    assert [present.started_at(loop), present.started_at(loop)] == [1, 1]
    await asyncio.sleep(0)
    assert [present.started_at(loop), present.started_at(loop)] == [2, 2]


def test_reviews_read_in_one_iteration_have_the_same_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    handle_now = ReviewHandler.handle_now
    moments: list[float] = []

    def noting(self: ReviewHandler, body: bytes, timing: ReviewTiming) -> bytes | None:
        moments.append(timing.received_at)
        reached.set()
        assert go_on.wait(30)
        return handle_now(self, body, timing)

    monkeypatch.setattr(ReviewHandler, "handle_now", noting)
    served = start()
    clients = [served.connect() for _ in range(5)]
    clients[0].send(review_with_uid(0))
    assert reached.wait(30)
    for client in clients[1:]:
        client.send(review_with_uid(1))
    go_on.set()
    for client in clients:
        review_in(client.answer())
    clients[0].send(review_with_uid(2))
    review_in(clients[0].answer())
    first, *together, last = moments
    assert len(together) == 4
    assert first < together[0] < last
    # Each of them has waited for those that were read before it.
    assert set(together) == {together[0]}
