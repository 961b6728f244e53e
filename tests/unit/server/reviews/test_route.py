"""The FastAPI route POST /mutate, called without a server."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message

from tests.support.reviews import PODS, UID, load_pod, patch_of, review
from tests.support.server_fixtures import SETTINGS, STEADY, make_app, make_components
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.cluster.source import NamespaceLookup
from webhook.core.admission.decider import Decider
from webhook.core.admission.handler import admit
from webhook.server.app import create_app
from webhook.server.reviews.request import answer_seconds

TEKTON = load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar"))
JSON = {"content-type": "application/json"}
LONG_COMMAND = "y" * 300_000


def long_review() -> dict[str, Any]:
    """A review of a pod whose patch is longer than one chunk, because a container is wrapped."""
    long = copy.deepcopy(review(TEKTON))
    long["request"]["object"]["spec"]["initContainers"][0]["command"].append(LONG_COMMAND)
    return long


async def test_route_answers_reviews_as_the_core_does_and_refuses_other_requests(
    client: httpx.AsyncClient, source: ManifestsSource
) -> None:
    for path in PODS:
        answer = await client.post("/mutate?timeout=5s", json=review(load_pod(path)))
        assert (answer.status_code, answer.headers["content-type"]) == (200, JSON["content-type"])
        decided = admit(answer.request.content, Decider(SETTINGS), source.view)
        assert answer.content == decided.body
    answer = await client.post("/mutate/", json=long_review())
    assert LONG_COMMAND in json.dumps(patch_of(answer.json()))
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        refused = await client.request(method, "/mutate")
        assert (refused.status_code, refused.text) == (405, "POST an AdmissionReview here\n")
        assert refused.headers["allow"] == "POST"
    assert (await client.head("/mutate/")).status_code == 405
    for content_type in ("text/plain", "application/yaml", None):
        headers = {"content-type": content_type} if content_type else {}
        wrong_type = await client.post("/mutate", content=b"{}", headers=headers)
        assert wrong_type.status_code == 415
        assert "application/json" in wrong_type.text
        assert wrong_type.headers["content-type"] == "text/plain; charset=utf-8"
    for body in (b"", b"{", b"[]", b"null", b"{}", b'{"request":{}}', b"\xff\xfe"):
        unreadable = await client.post("/mutate", content=body, headers=JSON)
        assert unreadable.status_code == 400
        assert unreadable.text.startswith("not an AdmissionReview: ")
    charset = {"content-type": "Application/JSON; charset=utf-8"}
    assert (await client.post("/mutate", json=review(TEKTON), headers=charset)).status_code == 200
    metrics = (await client.get("/metrics")).text
    for status, count in ((405, 7), (415, 3), (400, 7)):
        assert f'podsettle_requests_refused_total{{status="{status}"}} {count}.0' in metrics


async def call(
    app: FastAPI, *received: Message, query: bytes = b"", length: int | None = None
) -> list[Message]:
    """Return the messages that the application sends for a request to /mutate."""
    waiting, sent = list(received), []

    async def receive() -> Message:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    request = {"type": "http", "method": "POST", "path": "/mutate", "query_string": query}
    await app({**request, "headers": headers}, receive, send)
    return sent


def piece(body: bytes, more_body: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more_body}


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"max_review_bytes": 5000}, " bytes, and podsettle reads up to 5000"),
        ({"memory_bytes": 2500, "guaranteed_body_bytes": 2000}, "Overloaded: other reviews"),
        ({"max_queue_share": 0.0}, "Overloaded: this review waited"),
        ({"max_queue_seconds": 0.0}, "Overloaded: this review waited"),
        ({"body_timeout_seconds": 0.01}, "DeadlineExceeded: only 3000 bytes"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
async def test_limits_of_a_review_can_be_set(
    source: ManifestsSource, limits: dict[str, Any], text: str
) -> None:
    components = make_components(source, limits=replace(STEADY, **limits))
    body = json.dumps(review(TEKTON)).encode()
    assert 6000 < len(body) < 16_000
    pieces = [piece(body[:3000], more_body=True)]
    if "body_timeout_seconds" not in limits:
        pieces.append(piece(body[3000:]))
    _, answer = await call(create_app(components), *pieces)
    response = json.loads(answer["body"])["response"]
    assert "patch" not in response
    assert text in response["warnings"][0]
    assert components.review_server.handler.budget.used_bytes == 0


@pytest.mark.parametrize(("received", "length"), [(5001, None), (0, 5001)])
async def test_body_above_the_maximum_is_refused_before_its_end_and_counted(
    source: ManifestsSource, received: int, length: int | None
) -> None:
    components = make_components(source, limits=replace(STEADY, max_body_bytes=5000))
    pieces = [piece(b" " * received, more_body=True)] if received else []
    start, answer = await call(create_app(components), *pieces, length=length)
    assert (start["status"], answer["body"]) == (413, b"The body is longer than 5000 bytes.\n")
    counted = "podsettle_requests_refused_total", {"status": "413"}
    assert components.metrics.registry.get_sample_value(*counted) == 1
    assert components.review_server.handler.budget.used_bytes == 0


async def post(client: httpx.AsyncClient, body: Any) -> dict[str, Any]:
    answer = await client.post("/mutate", json=body)
    assert answer.status_code == 200, answer.text
    decoded: dict[str, Any] = answer.json()
    assert decoded["kind"] == "AdmissionReview"
    assert decoded["response"]["uid"] == UID
    assert decoded["response"]["allowed"] is True
    return decoded


async def test_answers_and_reasons_are_counted(client: httpx.AsyncClient) -> None:
    metrics = (await client.get("/metrics")).text
    for reason in ("Overloaded", "DeadlineExceeded", "InternalError"):
        assert f'podsettle_outcomes_total{{reason="{reason}",remedy=""}} 0.0' in metrics
    await post(client, review(TEKTON))
    await post(client, review(TEKTON, operation="UPDATE"))
    lines = (await client.get("/metrics")).text.splitlines()
    assert 'podsettle_reviews_total{result="patched"} 1.0' in lines
    assert 'podsettle_reviews_total{result="unchanged"} 1.0' in lines
    assert 'podsettle_outcomes_total{reason="Applied",remedy="postInitSleep"} 2.0' in lines
    assert 'podsettle_outcomes_total{reason="NotPodCreate",remedy=""} 1.0' in lines
    assert "podsettle_review_duration_seconds_count 2.0" in lines


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("", 7),
        ("timeout=2s", 1.4),
        ("timeout=1m0s", 21),
        ("timeout=500ms&x=y", 0.35),
        ("x=y&timeout=10s", 7),
        ("timeout=0", 7),
        ("timeout=0s", 7),
        ("timeout=", 7),
        ("timeout=soon", 7),
        ("timeout=-1s", 7),
        ("timeout=99999h", 21),
    ],
)
def test_deadline_is_a_share_of_the_api_servers_timeout(query: str, seconds: float) -> None:
    assert answer_seconds(query.encode()) == pytest.approx(seconds)


@pytest.mark.parametrize(("query", "seconds"), [("?timeout=1s", 0.175), ("?timeout=30s", 0.5)])
@pytest.mark.parametrize("found", [True, False])
async def test_namespace_look_up_gets_a_small_share_of_the_deadline(
    query: str, seconds: float, source: ManifestsSource, found: bool
) -> None:
    view = source.view
    asked: list[object] = []
    source.view = replace(view, namespaces={}, invents_namespaces=False)

    async def fetch_namespace(name: str, client: str, seconds: float) -> NamespaceLookup:
        asked.append((name, client, seconds))
        if not found:
            return NamespaceLookup.MISSING
        source.view = view
        return NamespaceLookup.FOUND

    source.fetch_namespace = fetch_namespace  # type: ignore[assignment,method-assign]
    transport = httpx.ASGITransport(make_app(source))
    async with httpx.AsyncClient(transport=transport, base_url="https://x") as client:
        answer = (await client.post(f"/mutate{query}", json=review(TEKTON))).json()
        metrics = (await client.get("/metrics")).text.splitlines()
    assert bool(patch_of(answer)) is found
    assert found or "NamespaceUnknown" in answer["response"]["warnings"][0]
    assert asked == [(TEKTON["metadata"]["namespace"], "127.0.0.1", pytest.approx(seconds))]
    result = "found" if found else "missing"
    assert f'podsettle_namespace_lookups_total{{result="{result}"}} 1.0' in metrics
