"""Clients that abuse their connections to either port, against a server process over TLS.

Each abuse names the limits that end it. All other timeouts are an hour, and abuses with the same
limits share a server. Reviews of other clients are answered meanwhile, nothing is left of the
abuse, and the memory of the process stays below the chart's limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, NamedTuple

import pytest

from tests.support.hostile_clients import Crowd, crowd
from tests.support.http_client import mutate
from tests.support.limited_server import limited_server
from tests.support.process import RunningServer
from tests.support.review_load import SETTLED, WHOLE, ReviewLoad, sending_reviews
from tests.support.reviews import review
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow

CLIENTS = 50
MIB = 1024 * 1024
LONG = mutate(json.dumps(SETTLED).encode().ljust(4 * MIB))
HEADER_LINE = b"x: " + b"y" * 1000 + b"\r\n"
PAGE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


def post(path: str, headers: str, body: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}\r\n"
    return f"{head}\r\n{body}".encode()


CHUNK = f"400\r\n{'x' * 1024}\r\n".encode()
CHUNKS = post("/mutate", "Transfer-Encoding: chunked", "")
PREVIEW = post("/preview", "Content-Length: 99999", "kind")
PREVIEW_CHUNKS = post("/preview", "Transfer-Encoding: chunked", "")
DOCUMENT = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"


class Abuse(NamedTuple):
    """What a client sends, and the limits that end it."""

    first: bytes
    piece: bytes
    """Sent again and again, until the server closes the connection."""
    limits: Mapping[str, float]
    is_fast: bool = False
    """Whether the client sends as fast as it can, and reads nothing."""


WRITE = {"write_timeout_seconds": 0.5}
LIFETIME = {"web_timeout_seconds": 3}
OF_REVIEWS = {
    "slow head of a review": Abuse(WHOLE[:60], b"x", {"header_timeout_seconds": 0.5}),
    "slow head of a probe": Abuse(LIVEZ[:10], b"x", {"header_timeout_seconds": 0.5}),
    "slow body": Abuse(LONG[:1000], b" ", {"body_timeout_seconds": 0.5} | WRITE),
    "slow body of a refused request": Abuse(
        post("/livez", "Content-Length: 9999999", "x"), b" ", WRITE
    ),
    "slow chunks": Abuse(CHUNKS, b"1\r\n \r\n", WRITE),
    "endless head": Abuse(LIVEZ[:-2], HEADER_LINE, {"max_header_bytes": 8192} | WRITE, True),
    "endless chunks": Abuse(CHUNKS, CHUNK * 64, WRITE, True),
    "unread answers": Abuse(b"", WHOLE, WRITE, True),
    "pipelined reviews": Abuse(WHOLE + WHOLE[:-100], WHOLE, WRITE),
    "pipelined probes": Abuse(LIVEZ + LIVEZ, LIVEZ, WRITE),
    "pipelined garbage": Abuse(WHOLE + b"\0", b" ", WRITE),
}
OF_THE_WEB_PORT = {
    "slow head": Abuse(PAGE[:10], b"x", LIFETIME),
    "slow body of a review": Abuse(LONG[:1000], b" ", {"body_timeout_seconds": 0.5} | WRITE),
    "slow chunks of a review": Abuse(CHUNKS, b"1\r\n \r\n", {"body_timeout_seconds": 0.5} | WRITE),
    "slow body of a preview": Abuse(PREVIEW, b" ", LIFETIME),
    "slow chunks of a preview": Abuse(PREVIEW_CHUNKS, b"1\r\n \r\n", LIFETIME),
    "slow body of a refused request": Abuse(
        post("/nowhere", "Content-Length: 9999999", "x"), b" ", WRITE
    ),
    "endless head": Abuse(PAGE[:-2], HEADER_LINE, {"max_header_bytes": 8192} | WRITE, True),
    "endless chunks of a preview": Abuse(PREVIEW_CHUNKS, CHUNK * 64, WRITE, True),
    "endless chunks of a refused request": Abuse(
        post("/nowhere", "Transfer-Encoding: chunked", ""), CHUNK, WRITE, True
    ),
    "unread answers": Abuse(DOCUMENT, DOCUMENT, LIFETIME, True),
    "pipelined requests": Abuse(PAGE + WHOLE, WHOLE, WRITE),
    "pipelined slow body": Abuse(PAGE + WHOLE[:-100], b" ", WRITE),
    "pipelined garbage": Abuse(PAGE + b"\0", b" ", WRITE),
}


Servers = Callable[..., RunningServer]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The server with some limits, which the first call for them starts."""
    with ExitStack() as stack:

        @cache
        def server(**limits: Any) -> RunningServer:
            return stack.enter_context(limited_server(tmp_path_factory.mktemp("certs"), **limits))

        yield server


@contextmanager
def abused(server: RunningServer, *, web: bool = False) -> Iterator[tuple[Crowd, ReviewLoad]]:
    """Clients that abuse a server, and others."""
    with crowd(server, web=web) as clients, sending_reviews(server) as others:
        yield clients, others
    in_flight = "podsettle_requests_in_flight"
    await_that(lambda: metric(server, in_flight) == 0, "no review is in flight")


def metric(server: RunningServer, name: str) -> float:
    with server.client() as client:
        lines = client.get("/metrics").text.splitlines()
    values = (line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} "))
    return float(next(values, 0))


def check_end(servers: Servers, abuse: Abuse, *, web: bool) -> None:
    """Check that the server ends the abuse, on the port of reviews also after a review."""
    with abused(servers(**abuse.limits), web=web) as (clients, others):
        clients.connect(CLIENTS // 2, abuse.first)
        for client in clients.connect(CLIENTS // 2, abuse.first if web else WHOLE):
            if not web:
                assert client.answer().status == 200
                client.send(abuse.first)
        with (clients.flooding if abuse.is_fast else clients.dripping)(abuse.piece):
            others.await_answers()
            clients.await_end()


@pytest.mark.parametrize("name", OF_REVIEWS)
def test_limit_ends_the_abuse_of_the_port_of_reviews(servers: Servers, name: str) -> None:
    check_end(servers, OF_REVIEWS[name], web=False)


@pytest.mark.parametrize("name", OF_THE_WEB_PORT)
def test_limit_ends_the_abuse_of_the_web_port(servers: Servers, name: str) -> None:
    check_end(servers, OF_THE_WEB_PORT[name], web=True)


@pytest.mark.parametrize("web", [False, True], ids=["reviews", "web"])
def test_unfinished_bodies_are_limited_by_the_bytes_held(servers: Servers, web: bool) -> None:
    overloaded = 'podsettle_outcomes_total{reason="Overloaded",remedy=""}'
    server = servers()
    before = metric(server, overloaded)
    with abused(server, web=web) as (clients, others):
        clients.connect(20, LONG[:-MIB])
        others.await_answers()
        await_that(lambda: metric(server, overloaded) > before, "a review is shed")


@pytest.mark.parametrize("web", [False, True], ids=["reviews", "web"])
def test_invented_namespaces_delay_no_review(servers: Servers, web: bool) -> None:
    pod = SETTLED["request"]["object"]
    with abused(servers(), web=web) as (clients, others):
        for number in range(300):
            body = review(pod, namespace=f"invented-{number}")
            (client,) = clients.connect(1, mutate(body))
            assert client.answer().status == 200
            clients.close()
        others.await_answers()


def test_bad_tokens_delay_no_review(servers: Servers) -> None:
    with abused(servers(checks_tokens=True), web=True) as (clients, others):
        for number in range(300):
            token = f"Authorization: Bearer {number}.{'x' * 16_000}\r\n\r\n"
            (client,) = clients.connect(1, PAGE.replace(b"/ ", b"/metrics ")[:-2] + token.encode())
            assert client.answer().status == 401
            clients.close()
        others.await_answers()
