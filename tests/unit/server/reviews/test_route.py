"""The FastAPI route POST /mutate, behind servers that know nothing of podsettle."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.types import Message

from tests.support.http_client import mutate as request_bytes
from tests.support.reviews import PODS, load_pod, patch_of, review
from tests.support.server_fixtures import SETTINGS, STEADY, make_app, make_components
from tests.support.waiting import await_that
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.decider import Decider
from webhook.core.admission.handler import admit
from webhook.server.app import create_app
from webhook.server.components import Components
from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.reviews.client_certs import CLIENT_CERTIFICATE_KEY

TEKTON = load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar"))
with warnings.catch_warnings():
    # Starlette prefers a successor of httpx, which nothing else here needs.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

JSON = {"content-type": "application/json"}
LONG_COMMAND = "y" * 300_000


@pytest.fixture
def components(source: ManifestsSource) -> Components:
    return make_components(source)


@pytest.fixture
def app(components: Components) -> FastAPI:
    return create_app(components)


def long_review() -> dict[str, Any]:
    """A review of a pod whose patch is longer than one chunk, because a container is wrapped."""
    long = copy.deepcopy(review(TEKTON))
    long["request"]["object"]["spec"]["initContainers"][0]["command"].append(LONG_COMMAND)
    return long


@contextmanager
def served_by_uvicorn(app: FastAPI, http: str) -> Iterator[httpx.Client]:
    """Serve with uvicorn as it is, and connect without TLS."""
    server = uvicorn.Server(uvicorn.Config(app, http=http, port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        await_that(lambda: server.started, "uvicorn has started")
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def check_all_answers(client: httpx.Client, source: ManifestsSource) -> None:
    """Check answers to reviews, which the core gives too, and errors."""
    for path in PODS:
        answer = client.post("/mutate?timeout=5s", json=review(load_pod(path)))
        assert (answer.status_code, answer.headers["content-type"]) == (200, JSON["content-type"])
        view = source.view
        decided = admit(answer.request.content, Decider(SETTINGS), view.policies, view)
        assert answer.content == decided.body
        assert "connection" not in answer.headers
    answer = client.post("/mutate/", json=long_review())
    assert LONG_COMMAND in json.dumps(patch_of(answer.json()))
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        refused = client.request(method, "/mutate")
        assert (refused.status_code, refused.text) == (405, "POST an AdmissionReview here\n")
        assert refused.headers["allow"] == "POST"
        assert refused.headers["connection"] == "close"
    assert client.head("/mutate/").status_code == 405
    wrong_type = client.post("/mutate", content=b"{}", headers={"content-type": "text/plain"})
    assert (wrong_type.status_code, wrong_type.headers["connection"]) == (415, "close")
    assert wrong_type.headers["content-type"] == "text/plain; charset=utf-8"
    unreadable = client.post("/mutate", content=b"{}", headers=JSON)
    assert unreadable.status_code == 400
    assert unreadable.text.startswith("not an AdmissionReview: ")
    assert "connection" not in unreadable.headers
    metrics = client.get("/metrics").text
    for status, count in ((405, 7), (415, 1), (400, 1)):
        assert f'podsettle_requests_refused_total{{status="{status}"}} {count}.0' in metrics


@pytest.mark.parametrize("http", ["httptools", "h11"])
def test_route_answers_reviews_and_refuses_other_requests_behind_plain_uvicorn(
    app: FastAPI, source: ManifestsSource, http: str
) -> None:
    with served_by_uvicorn(app, http) as client:
        check_all_answers(client, source)


def test_route_answers_reviews_and_refuses_other_requests_in_a_test_client(
    app: FastAPI, source: ManifestsSource
) -> None:
    with TestClient(app) as client:
        check_all_answers(client, source)


@pytest.mark.parametrize("http", ["httptools", "h11"])
def test_incomplete_body_is_answered_within_the_deadline_behind_plain_uvicorn(
    app: FastAPI, components: Components, http: str
) -> None:
    whole = request_bytes(review(TEKTON), "?timeout=200ms")

    async def answer_to(request: bytes, address: httpx.URL) -> bytes:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return head

    with served_by_uvicorn(app, http) as client:
        head = asyncio.run(answer_to(whole[:-100], client.base_url))
        assert head.startswith(b"HTTP/1.1 200 ")
        head = asyncio.run(
            answer_to(request_bytes(b'{"request"', "?timeout=200ms", length=100), client.base_url)
        )
        assert head.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in head
        metrics = client.get("/metrics").text
        assert 'podsettle_outcomes_total{reason="DeadlineExceeded",remedy=""} 1.0' in metrics
        assert 'podsettle_requests_refused_total{status="408"} 1.0' in metrics
    assert components.review_budget.used_bytes == 0


async def call(
    app: FastAPI,
    *received: Message,
    on_send: Callable[[], None] = lambda: None,
    **scope: Any,
) -> list[Message]:
    """Return the messages that the application sends for a request to /mutate."""
    waiting, sent = list(received), []

    async def receive() -> Message:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)
        on_send()

    headers = [(b"content-type", b"application/json")]
    request = {"type": "http", "method": "POST", "path": "/mutate", "query_string": b""}
    await app({**request, "headers": headers, **scope}, receive, send)
    return sent


def piece(body: bytes, more_body: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more_body}


async def test_client_that_disconnects_is_neither_counted_nor_logged(
    app: FastAPI, components: Components, caplog: pytest.LogCaptureFixture
) -> None:
    await call(app, piece(b'{"request"', more_body=True), {"type": "http.disconnect"})
    assert components.review_budget.used_bytes == 0
    assert not caplog.records
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        metrics = (await client.get("/metrics")).text
    assert "podsettle_requests_refused_total{" not in metrics
    assert 'podsettle_reviews_total{result="unchanged"} 0.0' in metrics


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"max_review_bytes": 5000}, " bytes, and podsettle reads up to 5000"),
        ({"memory_bytes": 2500, "guaranteed_body_bytes": 2000}, "Overloaded: other reviews"),
        ({"max_waiting_reviews": -1}, "Overloaded: 0 reviews are under way"),
        ({"max_queue_share": 0.0}, "Overloaded: 0 reviews are under way"),
        ({"max_queue_seconds": 0.0}, "Overloaded: 0 reviews are under way"),
        ({"body_timeout_seconds": 0.01}, "DeadlineExceeded: only 3000 bytes"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
async def test_limits_of_a_review_can_be_set(
    source: ManifestsSource, limits: dict[str, Any], text: str
) -> None:
    app = make_app(source, limits=replace(STEADY, **limits))
    body = json.dumps(review(TEKTON)).encode()
    assert 6000 < len(body) < 16_000
    pieces = [piece(body[:3000], more_body=True)]
    if "body_timeout_seconds" not in limits:
        pieces.append(piece(body[3000:]))
    _, answer = await call(app, *pieces)
    response = json.loads(answer["body"])["response"]
    assert "patch" not in response
    assert text in response["warnings"][0]


async def test_length_of_a_body_can_be_limited(source: ManifestsSource) -> None:
    app = make_app(source, limits=replace(STEADY, max_body_bytes=5000))
    start, answer = await call(app, piece(b" " * 5001, more_body=True))
    assert (start["status"], answer["body"]) == (413, b"the body is longer than 5000 bytes\n")


async def test_body_above_the_maximum_is_refused_before_its_end(
    app: FastAPI, components: Components
) -> None:
    quarter = b" " * (DEFAULT_LIMITS.max_body_bytes // 4)
    pieces = [piece(quarter, more_body=True)] * 4 + [piece(b" ", more_body=True)]
    start, *_ = await call(app, *pieces)
    assert start["status"] == 413
    assert (b"connection", b"close") in start["headers"]
    assert components.review_budget.used_bytes == 0


async def test_long_answer_is_sent_in_pieces_and_counted_while_it_is_sent(
    app: FastAPI,
    components: Components,
) -> None:
    counted: set[tuple[int, int]] = set()

    def count() -> None:
        counted.add((components.in_flight.reviews, components.review_budget.used_bytes))

    start, *pieces = await call(app, piece(json.dumps(long_review()).encode()), on_send=count)
    lengths = [len(message["body"]) for message in pieces]
    whole = int(dict(start["headers"])[b"content-length"])
    assert sum(lengths) == whole > len(LONG_COMMAND)
    assert set(lengths[:-1]) == {64 * 1024}
    assert [message.get("more_body", False) for message in pieces] == [
        *[True] * (len(pieces) - 1),
        False,
    ]
    # The review itself is no longer counted.
    assert counted == {(1, whole)}
    assert (components.in_flight.reviews, components.review_budget.used_bytes) == (0, 0)


async def test_time_since_the_request_was_received_counts_as_queueing(app: FastAPI) -> None:
    body = piece(json.dumps(review(TEKTON)).encode())
    for waited_seconds, settled in ((0.5, True), (1.5, False)):
        state = {"received_at": monotonic() - waited_seconds}
        sent = await call(app, body, state=state)
        response = json.loads(sent[1]["body"])["response"]
        assert ("patch" in response) is settled
        assert settled or "podsettle: Overloaded: " in response["warnings"][0]


async def test_client_certificate_in_the_state_is_required_if_configured(
    source: ManifestsSource,
) -> None:
    app = make_app(source, needs_certificate=True)
    body = piece(json.dumps(review(TEKTON)).encode())
    scopes: list[dict[str, Any]] = [{}, {"state": {}}, {"method": "GET"}]
    for scope in scopes:
        start, answer = await call(app, body, **scope)
        assert start["status"] == 403
        assert answer["body"].startswith(b"this path needs a client certificate")
        assert (b"content-type", b"text/plain; charset=utf-8") in start["headers"]
    start, _ = await call(app, body, state={CLIENT_CERTIFICATE_KEY: {"subject": ()}})
    assert start["status"] == 200
