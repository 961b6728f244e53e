"""The protocol and the route on a real server: both give, count and log the same answers."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.http_client import Client, mutate, review_in
from tests.support.protocol_server import (
    POD,
    WHOLE,
    Served,
    Start,
    review_with_uid,
)
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that
from webhook.server.reviews.handler import ReviewHandler, ReviewTiming


def send_chunked(client: Client, request: bytes) -> None:
    """Send a request with a chunked body, which is delegated to the route."""
    head, body = request.split(b"\r\n\r\n", 1)
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    chunked = b"\r\n".join([*lines, b"Transfer-Encoding: chunked"])
    client.send(chunked + b"\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")


# Equal answers on both paths


@pytest.mark.parametrize("path", PODS, ids=lambda path: path.stem)
def test_both_paths_give_the_same_answer(served: Served, path: Path) -> None:
    request = mutate(review(load_pod(path)))
    client = served.connect()
    client.send(request)
    whole = client.answer()
    served.send_in_two(client, request)
    parted = client.answer()
    assert served.delegated.requests == 0
    send_chunked(client, request)
    routed = client.answer()
    assert served.delegated.requests == 1
    assert review_in(whole)
    for other in (parted, routed):
        assert whole.body == other.body  # type: ignore[attr-defined]
        assert (whole.status, whole.reason) == (other.status, "OK")
        assert whole.version == other.version
        assert whole.getheader("content-type") == other.getheader("content-type")
    names = [[name for name, _ in answer.getheaders()] for answer in (whole, parted, routed)]
    assert names[0] == names[1] == ["date", "content-type", "content-length"]
    assert sorted(names[2]) == sorted([*names[0], "connection"])


def test_both_paths_count_and_log_the_same(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    requests = [WHOLE, mutate(review({}, namespace="ci", object=1)), mutate(b"{}" + b" " * 100)]

    def logged() -> list[str]:
        lines = "\n".join(
            r.getMessage() for r in caplog.records if r.name == "webhook.server.reviews.log"
        )
        return lines.splitlines()

    def grown(send: Callable[[Client, bytes], None]) -> dict[str, float]:
        before, lines, reviews = served.metrics(), len(logged()), served.reviews
        for request in requests:
            client = served.connect()
            send(client, request)
            client.answer()
        # One of the pod that is settled, and one of the malformed pod.
        await_that(lambda: len(logged()) > lines + 1, "the review log is flushed")
        assert len(logged()) == lines + 2
        assert served.reviews == reviews + len(requests)
        after = served.metrics()
        return {
            name: after[name] - before.get(name, 0)
            for name in after
            if after[name] != before.get(name, 0) and "duration_seconds_" not in name
        } | {"timed": after[timed] - before[timed]}

    timed = "podsettle_review_duration_seconds_count"
    at_once = grown(Client.send)
    in_pieces = grown(served.send_in_two)
    assert served.delegated.requests == 0
    by_route = grown(send_chunked)
    assert served.delegated.requests == len(requests)
    assert at_once == in_pieces == by_route
    assert at_once["timed"] == 2
    assert at_once['podsettle_reviews_total{result="patched"}'] == 1
    assert at_once['podsettle_reviews_total{result="unchanged"}'] == 1
    assert at_once['podsettle_requests_refused_total{status="400"}'] == 1


@pytest.mark.parametrize(
    ("target", "routed"),
    [
        ("/mutate", False),
        ("/mutate/", False),
        ("/mutate?timeout=10s", False),
        ("https://x/mutate?timeout=1s", True),
    ],
)
def test_whole_review_is_answered(served: Served, target: str, routed: bool) -> None:
    for _ in range(2):
        client = served.connect()
        client.send(WHOLE.replace(b"/mutate", target.encode(), 1))
        assert "patch" in review_in(client.answer())
    assert served.delegated.requests == (2 if routed else 0)
    assert served.reviews == 2


def test_body_without_a_review_is_answered_400_and_keeps_the_connection(served: Served) -> None:
    client = served.connect()
    for _ in range(2):
        client.send(mutate(json.dumps({"kind": "Pod"}).encode()))
        answer = client.answer()
        assert answer.status == 400
        assert answer.getheader("content-type") == "text/plain; charset=utf-8"
        assert answer.getheader("connection") is None
    assert served.delegated.requests == 0


def test_review_with_an_internal_error_is_answered(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.source.view = replace(served.source.view, runtime_classes=None)
    client = served.connect()
    client.send(mutate(review(POD)))
    assert "InternalError" in review_in(client.answer())["warnings"][0]
    assert served.delegated.requests == 0
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    assert served.metrics()['podsettle_outcomes_total{reason="InternalError",remedy=""}'] == 1


# On an event loop with sockets and TLS


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
