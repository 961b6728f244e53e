"""Both ports of a server over TLS: equal answers, slow clients, and freed memory."""

from __future__ import annotations

import gc
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

REVIEW = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))
WHOLE = mutate(REVIEW)
Serve = Callable[..., InProcess]


@pytest.fixture
def server(serve: Serve) -> InProcess:
    return serve()


def is_settled(client: Client) -> bool:
    client.send(WHOLE)
    return "patch" in review_in(client.answer())


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


# Slow clients


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
