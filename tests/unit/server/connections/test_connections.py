"""Connections to a server: slow clients, early answers, pipelining and upgrades."""

from __future__ import annotations

import gc
import json
import logging
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tests.support.http_client import Client, InProcess, mutate, review_in
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that
from webhook.server.connections.protocol import ReviewProtocol
from webhook.server.limits import DEFAULT_LIMITS, PreviewLimits

REVIEW = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))
WHOLE = mutate(REVIEW)


Serve = Callable[..., InProcess]


@pytest.fixture
def server(serve: Serve) -> InProcess:
    return serve()


def is_settled(client: Client, query: str = "") -> bool:
    client.send(mutate(REVIEW, query))
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


def test_header_timeout_applies_to_later_requests_on_a_connection(serve: Serve) -> None:
    server = serve(header_timeout_seconds=0.2)
    client = server.connect()
    assert is_settled(client)
    client.send(WHOLE[:30])
    assert client.is_closed()


def test_headers_in_pieces_are_read(server: InProcess) -> None:
    client = server.connect()
    for _ in range(2):
        for part in (WHOLE[:20], WHOLE[20:60], WHOLE[60:]):
            client.send(part)
        assert "patch" in review_in(client.answer())


def test_headers_in_pieces_within_the_timeout_keep_the_connection_open(serve: Serve) -> None:
    server = serve(header_timeout_seconds=2)
    client, slow = server.connect(), server.connect()
    for part in (WHOLE[:20], WHOLE[20:]):
        client.send(part)
    assert "patch" in review_in(client.answer())
    slow.send(WHOLE[:20])
    assert slow.is_closed()
    assert is_settled(client)


def test_headers_that_are_too_long_are_answered_400(serve: Serve) -> None:
    client = serve().connect()
    client.send("GET /livez HTTP/1.1\r\n")
    client.send(b"x: " + b"y" * (2 * DEFAULT_LIMITS.max_header_bytes + 1024 * 1024))
    assert client.answer().status == 400
    assert client.is_closed()


def test_idle_timeout_closes_connections_without_requests(serve: Serve) -> None:
    server = serve(idle_timeout_seconds=3)
    unused, idle, noisy = (server.connect() for _ in range(3))
    for client in (idle, noisy):
        assert is_settled(client)
    noisy.send("\r\n")
    assert unused.is_closed()
    assert idle.is_closed()
    assert noisy.is_closed()


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


# Load balancing


def test_answer_closes_its_connection_with_the_goaway_chance(
    server: InProcess, serve: Serve
) -> None:
    client = server.connect()
    client.send(WHOLE)
    assert client.answer().getheader("Connection") is None
    client = serve(goaway_chance=1).connect()
    client.send(WHOLE)
    answer = client.answer()
    assert "patch" in review_in(answer)
    assert answer.getheader("Connection") == "close"
    assert client.is_closed()


# Other protocols

UPGRADES = [
    "Connection: Upgrade\r\nUpgrade: h2c\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n",
    "connection: keep-alive, upgrade\r\nupgrade: x\r\n",
    "Upgrade: h2c\r\n",
]
SMUGGLED = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"


def asking(path: str, headers: str, body: bytes = SMUGGLED, method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("headers", "cause"),
    [
        ("Content-Length: 5\r\n", "more than one Content-Length"),
        (UPGRADES[0], "This server supports HTTP/1.1 only: send no Upgrade header"),
    ],
)
def test_refused_request_is_counted_and_logged_at_debug_with_its_client(
    server: InProcess, headers: str, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "webhook")
    client = server.connect()
    host, port = client.socket.getsockname()
    client.send(asking("/mutate", headers, b"12345"))
    assert client.answer().status == 400
    metrics = server.connect().get("/metrics").body  # type: ignore[attr-defined]
    assert b'podsettle_requests_refused_total{status="400"} 1.0' in metrics
    (line,) = [each for each in caplog.messages if "answered 400" in each]
    assert line.startswith(f"request from {(host, port)}: answered 400: {cause}")


@pytest.mark.parametrize("headers", UPGRADES)
@pytest.mark.parametrize("path", ["/mutate", "/preview", "/livez", "/", "/nowhere"])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_upgrade_request_is_refused_and_its_body_not_parsed(
    server: InProcess, headers: str, path: str, parts: int
) -> None:
    body = json.dumps(REVIEW).encode()
    request = asking(path, headers, body if path == "/mutate" else SMUGGLED)
    client = server.connect()
    with suppress(ssl.SSLError, OSError):
        for part in (
            (request, b"") if parts == 1 else (request[:90], request[90:-20], request[-20:])
        ):
            client.send(part)
    answer = client.answer()
    assert answer.status == 400
    assert b"send no Upgrade header" in answer.body  # type: ignore[attr-defined]
    assert answer.getheader("connection") == "close"
    assert client.is_closed()
    assert server.drain.reviews == 0


def test_connect_request_is_refused(server: InProcess) -> None:
    client = server.connect()
    client.send(b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED)
    assert client.answer().status == 400
    assert client.is_closed()


def test_upgrade_during_another_request_is_not_answered_in_its_place(server: InProcess) -> None:
    client = server.connect()
    client.send(mutate(REVIEW, "?timeout=5s")[:-10])
    await_that(lambda: server.components.in_flight.requests, "the review is under way")
    client.send(mutate(REVIEW)[-10:] + asking("/mutate", UPGRADES[0]))
    with suppress(ssl.SSLError, OSError):
        found = client.socket.recv(65536)
        assert found == b"" or found.startswith(b"HTTP/1.1 200 ")


# Memory


@pytest.fixture
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_garbage_collection")
@pytest.mark.parametrize("broken", [False, True], ids=["closed", "broken"])
@pytest.mark.parametrize("delegated", [False, True], ids=["plain", "delegated"])
def test_closed_connection_is_freed_without_garbage_collection(
    server: InProcess, broken: bool, delegated: bool
) -> None:
    client = server.connect()
    if delegated:
        # The request is incomplete, so the connection has an inner protocol.
        client.send("POST /preview HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nkind")
        await_that(lambda: server.components.in_flight.requests, "the request is delegated")
    else:
        assert is_settled(client)
    if broken:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await_that(lambda: not _connections(), "the connection is freed")


def _connections() -> list[object]:
    """Connections and requests in memory, including unreachable ones."""
    kinds = ReviewProtocol, HttpToolsProtocol, RequestResponseCycle
    return [found for found in gc.get_objects() if isinstance(found, kinds)]
