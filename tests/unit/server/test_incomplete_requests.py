"""Tests of reviews that arrive in pieces."""

from __future__ import annotations

import time

import pytest

from tests.support.factories import container, pod
from tests.support.http_client import mutate, review_in
from tests.support.protocol_server import REVIEW, WHOLE, Served, Start
from tests.support.reviews import review
from tests.support.waiting import await_that
from webhook.server.protocol import LoopTick


def test_slow_path_gets_long_incomplete_body_at_once(start: Start) -> None:
    served = start(body_wait_seconds=60)
    long = mutate(review(pod(container("a", "x" * 40_000))))
    client = served.connect()
    served.send_in_two(client, long)
    assert "auditAnnotations" in review_in(client.answer())
    assert served.slow_path.requests == 1


def test_body_timer_is_cancelled_when_a_request_is_delegated(start: Start) -> None:
    served = start(body_wait_seconds=60)
    client = served.connect()
    long = mutate(review(pod(container("a", "x" * 40_000))))
    client.send(long[:300])
    await_that(lambda: bool(served.connections), "the connection exists")
    connection = served.connections[-1]
    await_that(lambda: connection._body_timer is not None, "the head was read")
    client.send(long[300:-100])
    await_that(lambda: served.slow_path.requests == 1, "the application has it")
    assert connection._body_timer is None
    client.send(long[-100:])
    review_in(client.answer())


def test_body_timer_is_not_restarted_by_further_pieces(start: Start) -> None:
    served = start(body_wait_seconds=60)
    client = served.connect()
    waiting: list[object] = []
    for end in (300, 301, 302):
        client.send(WHOLE[end - 1 if waiting else 0 : end])
        await_that(lambda: bool(served.connections), "the connection exists")
        connection = served.connections[-1]
        await_that(lambda: len(connection._buffer) == end, "the piece was read")  # noqa: B023
        waiting.append(connection._body_timer)
    assert waiting[0] is waiting[1] is waiting[2]
    client.send(WHOLE[302:])
    assert "patch" in review_in(client.answer())


def test_incomplete_review_is_answered_during_shutdown(start: Start) -> None:
    served = start(body_wait_seconds=60)
    client = served.connect()
    client.send(WHOLE[:-100])
    await_that(lambda: bool(served.connections), "the connection exists")
    await_that(lambda: served.connections[-1]._body_timer is not None, "the first part was read")
    served.connections[-1].loop.call_soon_threadsafe(served.connections[-1].shutdown)
    await_that(lambda: served.slow_path.requests == 1, "the application has it")
    client.send(WHOLE[-100:])
    assert "patch" in review_in(client.answer())


def test_waiting_for_the_client_does_not_count_as_queueing(start: Start) -> None:
    # More than a quarter of the deadline has passed when the wait ends.
    served = start(body_wait_seconds=2)
    client = served.connect()
    request = mutate(REVIEW, "?timeout=8s")
    served.send_in_two(client, request)
    assert "patch" in review_in(client.answer())


@pytest.mark.parametrize("length", [10, 40_000])
def test_queueing_counts_as_overload_on_both_paths(
    served: Served, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(LoopTick, "started_at", lambda *_: time.monotonic() - 2)
    client = served.connect()
    request = mutate(review(pod(container("a", "x" * length))), "?timeout=10s")
    served.send_in_two(client, request)
    assert "Overloaded" in review_in(client.answer())["warnings"][0]


def test_body_timer_is_cancelled_when_the_client_disconnects(start: Start) -> None:
    served = start(body_wait_seconds=60)
    client = served.connect()
    client.send(WHOLE[:-100])
    await_that(lambda: bool(served.connections), "the connection exists")
    connection = served.connections[-1]
    await_that(lambda: connection._body_timer is not None, "the first part was read")
    client.close()
    await_that(lambda: connection._body_timer is None, "the connection is gone")
    assert served.slow_path.requests == 0
