"""POST /mutate: an allowed review for every body with a uid, an HTTP error for all others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.support.reviews import PODS, UID, load_pod, patch_of, review
from tests.support.server_fixtures import make_components
from tests.support.waiting import eventually
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.cluster.source import NamespaceLookup
from webhook.server.app import create_app
from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.reviews.request import answer_seconds

TEKTON = load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar"))


async def post(client: httpx.AsyncClient, body: Any) -> dict[str, Any]:
    answer = await client.post("/mutate", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    decoded: dict[str, Any] = answer.json()
    assert decoded["kind"] == "AdmissionReview"
    assert decoded["response"]["uid"] == UID
    assert decoded["response"]["allowed"] is True
    return decoded


async def test_covered_pod_is_patched(client: httpx.AsyncClient) -> None:
    answer = await post(client, review(TEKTON))
    assert answer["apiVersion"] == "admission.k8s.io/v1"
    paths = [operation["path"] for operation in patch_of(answer)]
    assert "/spec/initContainers/0/command" in paths
    assert (
        "tekton-on-crio/postInitSleep[prepare]=Applied"
        in (answer["response"]["auditAnnotations"]["applied"])
    )


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"operation": "CONNECT"},
        {"subResource": "ephemeralcontainers"},
        {"subResource": "binding"},
        {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
        {"resource": {"group": "example.com", "version": "v1", "resource": "pods"}},
    ],
    ids=str,
)
async def test_request_that_does_not_create_a_pod_is_allowed_unchanged(
    client: httpx.AsyncClient, request_: dict[str, Any]
) -> None:
    answer = await post(client, review(TEKTON, **request_))
    assert patch_of(answer) == []
    assert answer["response"]["auditAnnotations"] == {"skipped": "NotPodCreate"}


async def test_other_review_version_is_answered_in_that_version(
    client: httpx.AsyncClient,
) -> None:
    body = review(TEKTON) | {"apiVersion": "admission.k8s.io/v1beta1"}
    answer = await post(client, body)
    assert answer["apiVersion"] == "admission.k8s.io/v1beta1"
    assert patch_of(answer) == []
    assert "UnsupportedReview" in answer["response"]["warnings"][0]


@pytest.mark.parametrize("pod", [None, 1, "pod", [], {"spec": {"containers": {"name": "a"}}}])
async def test_malformed_pod_is_allowed_unchanged(client: httpx.AsyncClient, pod: Any) -> None:
    answer = await post(client, review({}, namespace="ci", object=pod))
    assert patch_of(answer) == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"{}", b'{"request":{}}', b"\xff\xfe"])
async def test_body_without_a_uid_is_answered_400_with_a_reason(
    client: httpx.AsyncClient, body: bytes
) -> None:
    answer = await client.post(
        "/mutate", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert answer.text.startswith("not an AdmissionReview: ")


@pytest.mark.parametrize("content_type", ["text/plain", "application/yaml", None])
async def test_content_type_other_than_json_is_answered_415(
    client: httpx.AsyncClient, content_type: str | None
) -> None:
    headers = {"content-type": content_type} if content_type else {}
    answer = await client.post("/mutate", content=json.dumps(review(TEKTON)), headers=headers)
    assert answer.status_code == 415
    assert "application/json" in answer.text


async def test_content_type_with_a_charset_is_accepted(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    answer = await client.post("/mutate", content=json.dumps(review(TEKTON)), headers=headers)
    assert answer.status_code == 200


async def test_body_is_read_up_to_the_limit_only(
    client: httpx.AsyncClient,
) -> None:
    body = json.dumps(review(TEKTON)).encode()
    headers = {"content-type": "application/json"}
    padded = body + b" " * (DEFAULT_LIMITS.max_review_bytes - len(body))
    assert (await client.post("/mutate", content=padded, headers=headers)).status_code == 200
    longer = (await client.post("/mutate", content=padded + b" ", headers=headers)).json()
    assert longer["response"]["allowed"] is True
    assert patch_of(longer) == []
    assert str(DEFAULT_LIMITS.max_review_bytes) in longer["response"]["warnings"][0]


async def test_body_above_the_maximum_is_answered_413(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/json"}
    answer = await client.post("/mutate", content=b" " * (33 * 1024 * 1024), headers=headers)
    assert answer.status_code == 413


async def test_review_cannot_forge_lines_of_the_log(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await client.post("/mutate", json=review(TEKTON, uid="x\n2026-11-21 ERROR forged"))

    def logged() -> list[str]:
        return [r.getMessage() for r in caplog.records if "uid" in r.getMessage()]

    await eventually(logged)
    (message,) = logged()
    assert "\n" not in message
    assert r"\n2026-11-21 ERROR forged" in message


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
async def test_methods_other_than_post_are_answered_405(
    client: httpx.AsyncClient, method: str
) -> None:
    assert (await client.request(method, "/mutate")).status_code == 405


async def test_answers_reasons_and_errors_are_counted(client: httpx.AsyncClient) -> None:
    await post(client, review(TEKTON))
    await post(client, review(TEKTON, operation="UPDATE"))
    await client.post("/mutate", content=b"{", headers={"content-type": "application/json"})
    lines = (await client.get("/metrics")).text.splitlines()
    assert 'podsettle_reviews_total{result="patched"} 1.0' in lines
    assert 'podsettle_reviews_total{result="unchanged"} 1.0' in lines
    assert 'podsettle_outcomes_total{reason="Applied",remedy="postInitSleep"} 2.0' in lines
    assert 'podsettle_outcomes_total{reason="NotPodCreate",remedy=""} 1.0' in lines
    assert 'podsettle_requests_refused_total{status="400"} 1.0' in lines
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


class NewNamespaces:
    """A source that has to look up every namespace. Records the client, and the time allowed."""

    def __init__(self, source: ManifestsSource, found: bool) -> None:
        self._source, self._found = source, found
        self.view = replace(source.view, namespaces={}, invents_namespaces=False)
        self.asked: list[tuple[str, str, float]] = []

    async def fetch_namespace(self, name: str, client: str, seconds: float) -> NamespaceLookup:
        self.asked.append((name, client, seconds))
        if not self._found:
            return NamespaceLookup.MISSING
        self.view = self._source.view
        return NamespaceLookup.FOUND

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


@pytest.mark.parametrize(("query", "seconds"), [("?timeout=1s", 0.175), ("?timeout=30s", 0.5)])
async def test_namespace_look_up_gets_a_small_share_of_the_deadline(
    query: str, seconds: float, source: ManifestsSource
) -> None:
    for found in (True, False):
        new_source = NewNamespaces(source, found)
        async with client_of(new_source) as client:
            answer = (await client.post(f"/mutate{query}", json=review(TEKTON))).json()
            metrics = (await client.get("/metrics")).text.splitlines()
        assert bool(patch_of(answer)) is found
        ((name, address, given),) = new_source.asked
        assert (name, address) == (TEKTON["metadata"]["namespace"], "127.0.0.1")
        result = "found" if found else "missing"
        assert f'podsettle_namespace_lookups_total{{result="{result}"}} 1.0' in metrics
        assert given == pytest.approx(seconds)
        if not found:
            assert "NamespaceUnknown" in answer["response"]["warnings"][0]


@asynccontextmanager
async def client_of(source: Any, waiting: int = 0) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that permits two waiting reviews, and has some of them."""
    components = make_components(source)
    components.in_flight.reviews, components.in_flight.limit = waiting, 2
    transport = httpx.ASGITransport(create_app(components))
    async with httpx.AsyncClient(transport=transport, base_url="https://podsettle") as client:
        yield client


async def test_review_above_the_limit_in_flight_is_answered_unread(source: ManifestsSource) -> None:
    async with client_of(source, waiting=3) as client:
        answer = await post(client, review(TEKTON))
        assert patch_of(answer) == []
        assert "podsettle: Overloaded: 3 reviews are under way" in answer["response"]["warnings"][0]
        assert answer["response"]["auditAnnotations"] == {"skipped": "Overloaded"}
        # A body without a uid is an error under load as well.
        headers = {"content-type": "application/json"}
        wrong = await client.post("/mutate", content=b"{}", headers=headers)
        assert wrong.status_code == 400
        metrics = (await client.get("/metrics")).text
        assert 'podsettle_outcomes_total{reason="Overloaded",remedy=""} 1.0' in metrics
        assert "podsettle_requests_in_flight 1.0" in metrics  # this request


async def test_review_at_the_limit_in_flight_is_decided_on(source: ManifestsSource) -> None:
    async with client_of(source, waiting=2) as client:
        assert patch_of(await post(client, review(TEKTON)))


async def test_counters_of_failures_start_at_zero(client: httpx.AsyncClient) -> None:
    metrics = (await client.get("/metrics")).text
    for reason in ("Overloaded", "DeadlineExceeded", "InternalError"):
        assert f'podsettle_outcomes_total{{reason="{reason}",remedy=""}} 0.0' in metrics


async def test_internal_error_is_logged_with_its_traceback(
    client: httpx.AsyncClient, source: ManifestsSource, caplog: pytest.LogCaptureFixture
) -> None:
    source.view = replace(source.view, runtime_classes=None)  # type: ignore[arg-type]
    pod = load_pod(next(path for path in PODS if path.stem == "woodpecker-step"))
    answer = await post(client, review(pod))
    assert "InternalError" in answer["response"]["warnings"][0]
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert UID in record.getMessage()
    assert record.exc_info is not None
