"""Clients that abuse their connections, against a server process over TLS.

Each test names the limit that ends the abuse, as a keyword of `abused`. All other timeouts are an
hour. Reviews of other clients are answered meanwhile, nothing is left of the abuse, and the memory
of the process stays below the chart's limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.hostile_clients import Crowd, crowd
from tests.support.http_client import mutate
from tests.support.limited_server import limited_server
from tests.support.process import RunningServer
from tests.support.protocol_server import LIVEZ
from tests.support.review_load import SETTLED, WHOLE, ReviewLoad, sending_reviews
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow

CLIENTS = 50
MIB = 1024 * 1024
LONG = mutate(json.dumps(SETTLED).encode().ljust(4 * MIB))


def post(path: str, headers: str, body: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}\r\n"
    return f"{head}\r\n{body}".encode()


CHUNK = f"400\r\n{'x' * 1024}\r\n".encode()
CHUNKS = post("/mutate", "Transfer-Encoding: chunked", "")
PREVIEW_CHUNKS = post("/preview", "Transfer-Encoding: chunked", "")
PREVIEW = post("/preview", "Content-Length: 9999999", "kind")
REFUSED = post("/livez", "Content-Length: 9999999", "x")


class Abused(NamedTuple):
    """A server with clients that abuse it, and with others."""

    server: RunningServer
    clients: Crowd
    others: ReviewLoad


@contextmanager
def abused(directory: Path, **limits: Any) -> Iterator[Abused]:
    with limited_server(directory, **limits) as server:
        with crowd(server) as clients, sending_reviews(server) as others:
            yield Abused(server, clients, others)
        in_flight = "podsettle_requests_in_flight"
        await_that(lambda: metric(server, in_flight) == 1, "only the last request is in flight")


def metric(server: RunningServer, name: str) -> float:
    with server.client() as client:
        lines = client.get("/metrics").text.splitlines()
    values = (line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} "))
    return float(next(values, 0))


def begin(clients: Crowd, abuse: bytes, count: int = CLIENTS) -> None:
    """Send the abuse first on a half of the connections, and after a review on the others."""
    clients.connect(count // 2, abuse)
    for client in clients.connect(count // 2, WHOLE):
        assert client.answer().status == 200
        client.send(abuse)


# Clients that send slowly


@pytest.mark.parametrize("head", [WHOLE[:60], LIVEZ[:10]], ids=["review", "other"])
def test_slow_head_is_ended_by_the_header_timeout(tmp_path: Path, head: bytes) -> None:
    with abused(tmp_path, header_timeout_seconds=0.5) as (_, clients, others):
        begin(clients, head)
        with clients.dripping(b"x"):
            others.await_answers()
            clients.await_end()


@pytest.mark.parametrize(
    ("request_", "piece"),
    [(LONG[:1000], b" "), (CHUNKS, b"1\r\n \r\n")],
    ids=["length", "chunks"],
)
def test_slow_body_is_ended_by_the_body_timeouts(
    tmp_path: Path, request_: bytes, piece: bytes
) -> None:
    """The first one answers the review, and the second one closes the connection."""
    limits = {"body_timeout_seconds": 0.5, "write_timeout_seconds": 0.5}
    with abused(tmp_path, **limits) as (_, clients, others):
        begin(clients, request_)
        with clients.dripping(piece):
            others.await_answers()
            clients.await_end()


@pytest.mark.parametrize(
    ("request_", "piece"),
    [(PREVIEW, b" "), (PREVIEW_CHUNKS, b"1\r\n \r\n")],
    ids=["length", "chunks"],
)
def test_slow_request_for_uvicorn_is_ended_by_its_deadline(
    tmp_path: Path, request_: bytes, piece: bytes
) -> None:
    places = {"max_handed_over": CLIENTS, "max_handed_over_per_client": CLIENTS}
    with abused(tmp_path, handed_over_timeout_seconds=3, **places) as (_, clients, others):
        begin(clients, request_)
        with clients.dripping(piece):
            others.await_answers()
            clients.await_end()


def test_slow_body_of_a_refused_request_is_ended_by_the_write_timeout(tmp_path: Path) -> None:
    with abused(tmp_path, write_timeout_seconds=0.5) as (_, clients, others):
        begin(clients, REFUSED)
        with clients.dripping(b" "):
            others.await_answers()
            clients.await_end()


# Clients that send without end


def test_endless_head_is_ended_by_the_maximum_head_size(tmp_path: Path) -> None:
    """The rest of it is received until the write timeout, so that the client reads the 400."""
    limits = {"max_header_bytes": 8 * 1024, "write_timeout_seconds": 0.5}
    with abused(tmp_path, **limits) as (_, clients, others):
        begin(clients, LIVEZ[:-2])
        with clients.flooding(b"x: " + b"y" * 1000 + b"\r\n"):
            others.await_answers()
            clients.await_end()


def test_endless_chunks_are_ended_by_the_maximum_body_size(tmp_path: Path) -> None:
    """The rest of them is received until the write timeout, as for an endless head."""
    with abused(tmp_path, write_timeout_seconds=0.5) as (_, clients, others):
        begin(clients, CHUNKS, 2)
        with clients.flooding(CHUNK * 64):
            others.await_answers()
            clients.await_end()


def test_endless_chunks_of_a_refused_request_are_ended_by_the_write_timeout(
    tmp_path: Path,
) -> None:
    with abused(tmp_path, write_timeout_seconds=0.5) as (_, clients, others):
        clients.connect(CLIENTS, post("/livez", "Transfer-Encoding: chunked", ""))
        with clients.flooding(CHUNK):
            others.await_answers()
            clients.await_end()


def test_unfinished_bodies_are_limited_by_the_bytes_held(tmp_path: Path) -> None:
    overloaded = 'podsettle_outcomes_total{reason="Overloaded",remedy=""}'
    with abused(tmp_path) as (server, clients, others):
        begin(clients, LONG[:-MIB], 20)
        others.await_answers()
        await_that(lambda: metric(server, overloaded), "a review is shed")


# Clients that do not read


def test_unread_answers_are_ended_by_the_write_timeout(tmp_path: Path) -> None:
    with abused(tmp_path, write_timeout_seconds=0.5) as (_, clients, others):
        clients.connect(CLIENTS)
        with clients.flooding(WHOLE):
            others.await_answers()
            clients.await_end()


def test_unread_answer_of_uvicorn_is_ended_by_the_write_timeout(tmp_path: Path) -> None:
    pods = {"apiVersion": "v1", "kind": "List", "items": [SETTLED["request"]["object"]] * 40}
    body = json.dumps(pods)
    with abused(tmp_path, write_timeout_seconds=0.5) as (_, clients, others):
        clients.connect(2, post("/preview", f"Content-Length: {len(body)}", body))
        others.await_answers()
        clients.await_end()


@pytest.mark.parametrize("request_", [PREVIEW, PREVIEW_CHUNKS], ids=["length", "chunks"])
def test_requests_for_uvicorn_are_limited_by_their_number(tmp_path: Path, request_: bytes) -> None:
    with abused(tmp_path, max_handed_over=CLIENTS, max_handed_over_per_client=CLIENTS) as (
        server,
        clients,
        others,
    ):
        clients.connect(CLIENTS, request_)
        others.await_answers()
        with server.client() as client:
            assert client.post("/preview", content="kind").status_code == 503
            assert client.get("/readyz").status_code == 200


# Clients that pipeline


@pytest.mark.parametrize(
    ("behind", "piece"),
    [(WHOLE, WHOLE), (WHOLE[:-100], b" "), (WHOLE[:60], b"x"), (CHUNKS, CHUNK), (LIVEZ, LIVEZ)],
    ids=["reviews", "slow body", "slow head", "chunks", "others"],
)
def test_data_behind_a_request_for_uvicorn_ends_with_its_connection(
    tmp_path: Path, behind: bytes, piece: bytes
) -> None:
    """uvicorn answers one request. Then the client has the write timeout to close."""
    with abused(tmp_path, write_timeout_seconds=0.5) as (_, clients, others):
        clients.connect(CLIENTS, LIVEZ + behind)
        with clients.dripping(piece):
            others.await_answers()
            clients.await_end()


@pytest.mark.parametrize("piece", [WHOLE, b" "], ids=["reviews", "slow"])
def test_data_behind_a_review_ends_with_its_connection(tmp_path: Path, piece: bytes) -> None:
    with abused(tmp_path, write_timeout_seconds=0.5) as (_, clients, others):
        clients.connect(CLIENTS, WHOLE + WHOLE[:-100])
        with clients.dripping(piece):
            others.await_answers()
            clients.await_end()
