"""Connections to a server over TLS: slow clients, refusals, and freed memory."""

from __future__ import annotations

import gc
import logging
import socket
import ssl
import struct
from collections.abc import Callable, Iterator

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tests.support.http_client import Client, InProcess, mutate, review_in
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that
from webhook.server.connections.protocol import ReviewProtocol
from webhook.server.connections.uvicorn_connection import UvicornConnection
from webhook.server.limits import PreviewLimits

REVIEW = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))
WHOLE = mutate(REVIEW)
Serve = Callable[..., InProcess]


@pytest.fixture
def server(serve: Serve) -> InProcess:
    return serve()


def is_settled(client: Client) -> bool:
    client.send(WHOLE)
    return "patch" in review_in(client.answer())


# Slow clients


def test_header_timeout_closes_only_the_slow_connections(serve: Serve) -> None:
    server = serve(header_timeout_seconds=0.2)
    unused, between, slow, dripping = (server.connect() for _ in range(4))
    assert is_settled(between)
    slow.send("GET /livez HTTP/1.1\r\nHo")
    assert slow.is_closed()
    with pytest.raises((ssl.SSLError, OSError)):  # noqa: PT012 (any of the writes may fail)
        dripping.send("GET /livez HTTP/1.1\r\n")
        while True:
            dripping.send("x: y\r\n")
    assert is_settled(unused)
    assert is_settled(between)


# The deadline


def test_review_whose_body_is_late_is_answered_within_its_deadline(server: InProcess) -> None:
    client = server.connect()
    client.send(mutate(REVIEW, "?timeout=200ms")[:-100])
    response = review_in(client.answer())
    assert "patch" not in response
    assert "podsettle: DeadlineExceeded: " in response["warnings"][0]
    metrics = server.connect().get("/metrics").body  # type: ignore[attr-defined]
    assert b'podsettle_outcomes_total{reason="DeadlineExceeded",remedy=""} 1.0' in metrics


def test_incomplete_body_without_a_uid_is_answered_408(serve: Serve) -> None:
    client = serve().connect()
    client.send(mutate(b'{"request"', "?timeout=200ms", length=100))
    answer = client.answer()
    assert answer.status == 408
    assert client.is_closed()


def test_preview_whose_body_never_ends_is_answered_408(serve: Serve) -> None:
    server = serve(preview=PreviewLimits(body_timeout_seconds=0.2))
    client = server.connect()
    client.send("POST /preview HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nkind")
    assert client.answer().status == 408


def test_client_that_disconnects_is_not_counted_as_refused(server: InProcess) -> None:
    client = server.connect()
    client.send(WHOLE[:-10])
    await_that(lambda: server.components.in_flight.requests, "the review is under way")
    client.close()

    def nothing_is_in_flight() -> bool:
        metrics = server.connect().get("/metrics").body  # type: ignore[attr-defined]
        assert b"podsettle_requests_refused_total{" not in metrics
        return b"podsettle_requests_in_flight 1.0" in metrics  # this request

    await_that(nothing_is_in_flight, "the review has ended")


# Refusals


@pytest.mark.parametrize(
    ("headers", "cause"),
    [
        ("Content-Length: 5\r\n", "Duplicate Content-Length"),
        ("Upgrade: h2c\r\n", "This server supports HTTP/1.1 only: send no Upgrade header"),
    ],
)
def test_refused_request_is_counted_and_logged_at_debug_with_its_client(
    server: InProcess, headers: str, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "webhook")
    client = server.connect()
    host, port = client.socket.getsockname()
    client.send(WHOLE.replace(b"Host: x\r\n", b"Host: x\r\n" + headers.encode()))
    assert client.answer().status == 400
    metrics = server.connect().get("/metrics").body  # type: ignore[attr-defined]
    assert b'podsettle_requests_refused_total{status="400"} 1.0' in metrics
    (line,) = [each for each in caplog.messages if "answered 400" in each]
    assert line.startswith(f"request from {(host, port)}: answered 400: {cause}")


# Memory


@pytest.fixture
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_garbage_collection")
@pytest.mark.parametrize("broken", [False, True], ids=["closed", "broken"])
@pytest.mark.parametrize("request_", ["review", "answered by uvicorn", "incomplete"])
def test_closed_connection_is_freed_without_garbage_collection(
    server: InProcess, broken: bool, request_: str
) -> None:
    client = server.connect()
    if request_ == "review":
        assert is_settled(client)
    elif request_ == "answered by uvicorn":
        assert client.get("/livez").status == 200
    else:
        client.send("POST /preview HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nkind")
        await_that(lambda: server.components.in_flight.requests, "the request is handed over")
    if broken:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await_that(lambda: not _connections(), "the connection is freed")


def _connections() -> list[object]:
    """Connections and requests in memory, including unreachable ones."""
    kinds = ReviewProtocol, UvicornConnection, HttpToolsProtocol, RequestResponseCycle
    return [found for found in gc.get_objects() if isinstance(found, kinds)]
