"""Both ports of a server over TLS: equal answers, slow clients, and freed memory."""

from __future__ import annotations

import gc
import json
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from tests.support.http_client import Client, InProcess, mutate, review_in
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that
from webhook.server.connections.protocol import ReviewProtocol, State
from webhook.server.connections.web import WebProtocol
from webhook.server.limits import MIB

REVIEW = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))
WHOLE = mutate(REVIEW)
Serve = Callable[..., InProcess]


@pytest.fixture
def server(serve: Serve) -> InProcess:
    return serve()


def is_settled(client: Client) -> bool:
    client.send(WHOLE)
    return "patch" in review_in(client.answer())


def warning(client: Client) -> str:
    response = review_in(client.answer())
    assert "patch" not in response
    text: str = response["warnings"][0]
    return text


def await_receiving(server: InProcess) -> None:
    """Wait until the server has read the beginning of a request."""

    def receives() -> bool:
        connections = list(server.components.review_server.connections)
        return any(found.state is State.RECEIVING for found in connections)

    await_that(receives, "a request has begun")


def used_bytes(server: InProcess) -> int:
    return server.components.review_server.handler.budget.used_bytes


# Equal answers on both ports


def send_at_once(server: InProcess, request: bytes) -> Client:
    client = server.connect()
    client.send(request)
    return client


def send_in_two(server: InProcess, request: bytes) -> Client:
    client = server.connect()
    client.send(request[:-100])
    await_receiving(server)
    client.send(request[-100:])
    return client


def send_to_the_web_port(server: InProcess, request: bytes) -> Client:
    client = server.connect(web=True)
    client.send(request)
    return client


def test_reviews_are_answered_counted_and_logged_the_same_on_each_way(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    requests = [
        *(mutate(review(load_pod(path))) for path in PODS),
        mutate(review({}, namespace="ci", object=1)),
        mutate(b"{}" + b" " * 100),
    ]
    found: list[Any] = []
    for send in (send_at_once, send_in_two, send_to_the_web_port):
        server = serve()
        caplog.clear()
        answers = []
        for request in requests:
            answer = send(server, request).answer()
            answers.append((answer.status, answer.getheader("content-type"), answer.body))  # type: ignore[attr-defined]
        text = server.connect(web=True).get("/metrics").body.decode()  # type: ignore[attr-defined]
        metrics = [
            line
            for line in text.splitlines()
            if line.startswith(("podsettle_reviews", "podsettle_outcomes", "podsettle_requests_re"))
        ]
        server.close()  # It writes the lines that wait.
        lines = [r.getMessage() for r in caplog.records if r.name == "webhook.server.reviews.log"]
        found.append((answers, metrics, "\n".join(lines)))
    assert found[0] == found[1] == found[2]
    answers, metrics, _ = found[0]
    assert [status for status, *_ in answers] == [200] * (len(requests) - 1) + [400]
    assert 'podsettle_requests_refused_total{status="400"} 1.0' in metrics
    counts = [line.split() for line in metrics if line.startswith("podsettle_reviews_total")]
    assert sum(float(count) for _, count in counts) == len(requests) - 1


def test_limits_on_the_size_of_a_review_are_those_of_the_server(serve: Serve) -> None:
    body = json.dumps(REVIEW).encode().ljust(300_000)
    server = serve(max_review_bytes=len(body), max_body_bytes=len(body) + 1)
    whole, longer, too_long = (
        send_at_once(server, mutate(body + b" " * extra)) for extra in range(3)
    )
    assert "patch" in review_in(whole.answer())
    assert f"podsettle reads up to {len(body)}" in warning(longer)
    assert too_long.answer().status == 413


# Slow clients


@pytest.mark.parametrize("web", [False, True])
def test_incomplete_body_is_answered_within_its_deadline(serve: Serve, web: bool) -> None:
    server = serve(body_timeout_seconds=0.25)
    part = server.connect(web=web)
    part.send(mutate(REVIEW, "?timeout=30s")[:-100])
    assert "DeadlineExceeded: only " in (text := warning(part))
    assert text.endswith("bytes of the review arrived within 0.25 s")
    short = server.connect(web=web)
    short.send(mutate(REVIEW, "?timeout=100ms")[:-100])
    assert warning(short).endswith("bytes of the review arrived within 0.07 s")
    without_uid = server.connect(web=web)
    without_uid.send(mutate(b'{"request"', "?timeout=200ms", length=100))
    assert without_uid.answer().status == 408
    for client in (part, short, without_uid):
        assert client.is_closed()
    assert used_bytes(server) == 0


def test_client_that_disconnects_is_not_counted_as_refused(server: InProcess) -> None:
    for web in (False, True):
        client = server.connect(web=web)
        client.send(WHOLE[:-10])
        if not web:
            await_receiving(server)
            assert server.components.review_server.requests() == 1
        client.close()
    await_that(lambda: server.components.review_server.requests() == 0, "the review has ended")
    await_that(lambda: used_bytes(server) == 0, "the bytes are returned")
    assert b"requests_refused_total{" not in server.connect(web=True).get("/metrics").body  # type: ignore[attr-defined]


# The memory budget


def test_incomplete_bodies_are_limited_by_the_memory_budget(serve: Serve) -> None:
    server = serve(body_timeout_seconds=3600, memory_bytes=4 * MIB)
    waiting = mutate(json.dumps(REVIEW).encode().ljust(4 * MIB), "?timeout=30s")
    holding = [server.connect() for _ in range(3)]
    for client in holding:
        client.send(waiting[:MIB])
    await_that(lambda: used_bytes(server) > 2.9 * MIB, "the bodies have arrived")
    late = server.connect()
    late.send(waiting[: 2 * MIB])
    assert "podsettle: Overloaded: other reviews and answers occupy" in warning(late)
    assert late.is_closed()
    await_that(lambda: used_bytes(server) <= 3 * MIB, "its bytes are returned")
    # Short reviews are decided in any case, whole and in pieces.
    server.components.review_server.handler.budget.limit_bytes = 0
    assert "patch" in review_in(send_at_once(server, WHOLE).answer())
    assert "patch" in review_in(send_in_two(server, WHOLE).answer())
    server.components.review_server.handler.budget.limit_bytes = 32 * MIB
    holding[0].send(waiting[MIB:])
    assert "patch" in review_in(holding[0].answer())
    for client in holding[1:]:
        client.close()
    await_that(lambda: used_bytes(server) == 0, "the bytes are returned")


@pytest.fixture
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_garbage_collection")
@pytest.mark.parametrize("broken", [False, True], ids=["closed", "broken"])
@pytest.mark.parametrize("request_", ["review", "incomplete", "web", "incomplete web"])
def test_closed_connection_is_freed_without_garbage_collection(
    server: InProcess, broken: bool, request_: str
) -> None:
    client = server.connect(web="web" in request_)
    if request_ == "review":
        assert is_settled(client)
    elif request_ == "web":
        assert client.get("/version").status == 200
    else:
        client.send(WHOLE[:-10])
        await_that(lambda: used_bytes(server), "the body has arrived")
    if broken:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await_that(lambda: not _connections(), "the connection is freed")
    assert used_bytes(server) == 0


def _connections() -> list[object]:
    """Connections and requests in memory, including unreachable ones."""
    kinds = ReviewProtocol, WebProtocol, RequestResponseCycle
    return [found for found in gc.get_objects() if isinstance(found, kinds)]


def test_client_of_the_web_port_causes_no_warning(
    server: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    for request in (
        "BAD\r\n\r\n",
        "GET /version HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    ):
        client = server.connect(web=True)
        client.send(request)
        client.answer()
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
