"""Every review is answered with an allowed review, never with a 5xx, even after internal errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.factories import container, namespace, policy, view
from tests.support.reviews import UID, patch_of, review
from tests.support.server_fixtures import make_app
from tests.support.strategies import JUNK, PODS, VIEWS
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.cluster.source import NamespaceLookup
from webhook.core.admission.decision import Decision
from webhook.core.policy.snapshot import Snapshot
from webhook.server.reviews.log import ReviewLog

INITLESS = {"metadata": {}, "spec": {"containers": [container("main", "/x")]}}
SLEEPING = policy("sleep", remedies={"postInitSleep": {}})
TWO = (SLEEPING, policy("class", remedies={"runtimeClass": {"name": "gone"}}))
KNOWN = [namespace("ci")]


class Service:
    """The application on one event loop, with a view that tests replace."""

    def __init__(self, source: ManifestsSource, runner: asyncio.Runner) -> None:
        self.source = source
        self._runner = runner
        self._app = make_app(source)

    def request(self, method: str, path: str, **content: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            # A server answers 500 for exceptions, so the transport does the same.
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="https://x") as client:
                return await client.request(method, path, **content)

        return self._runner.run(send())

    def review(self, pod: Any) -> dict[str, Any]:
        """Return the answer to the review of a pod, and check what every answer must contain."""
        answer = self.request("POST", "/mutate", json=review({}, namespace="ci", object=pod))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        assert found["response"]["uid"] == UID
        assert found["response"]["allowed"] is True
        return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with asyncio.Runner() as runner:
        yield Service(ManifestsSource(tmp_path_factory.mktemp("manifests")), runner)


@examples(200)
@given(pod=st.one_of(PODS, PODS, PODS, JUNK), seen=VIEWS)
@example(pod=INITLESS, seen=view(SLEEPING, namespaces=KNOWN))
@example(pod=INITLESS, seen=view(*TWO, namespaces=KNOWN))
@example(pod=INITLESS, seen=replace(view(SLEEPING), invents_namespaces=False))
def test_any_pod_with_any_policies_is_allowed(service: Service, pod: Any, seen: Snapshot) -> None:
    service.source.view = seen
    warnings = service.review(pod)["response"].get("warnings", [])
    assert not [warning for warning in warnings if "InternalError" in warning]


class UnexpectedError(Exception):
    pass


@pytest.fixture
def failing(service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    """A service whose source raises an unexpected exception when it looks up a namespace."""

    async def fetch_namespace(_name: str, _client: str, _seconds: float) -> NamespaceLookup:
        raise UnexpectedError("of the source")

    service.source.view = replace(view(SLEEPING), invents_namespaces=False)
    monkeypatch.setattr(service.source, "fetch_namespace", fetch_namespace)
    return service


def errors(service: Service) -> float:
    name = 'podsettle_outcomes_total{reason="InternalError",remedy=""} '
    lines = service.request("GET", "/metrics").text.splitlines()
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def check_internal_error(service: Service, caplog: pytest.LogCaptureFixture, why: str) -> None:
    before = errors(service)
    answer = service.review(INITLESS)
    assert patch_of(answer) == []
    assert answer["response"]["auditAnnotations"] == {"skipped": "InternalError"}
    assert why in answer["response"]["warnings"][0]
    assert errors(service) == before + 1
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert UID in record.getMessage()
    assert record.exc_info is not None
    assert why in str(record.exc_info[1])


def test_source_that_raises_costs_the_pod_only_its_remedies(
    failing: Service, caplog: pytest.LogCaptureFixture
) -> None:
    check_internal_error(failing, caplog, "of the source")


def test_exception_after_the_decision_costs_the_pod_only_its_remedies(
    service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def within_etcd_limit(_decision: Decision, _body: bytes) -> Decision:
        raise IndexError("no outcomes")

    monkeypatch.setattr("webhook.core.admission.handler.within_etcd_limit", within_etcd_limit)
    service.source.view = view(SLEEPING, namespaces=KNOWN)
    check_internal_error(service, caplog, "no outcomes")


def test_body_without_a_review_is_answered_400_despite_a_failing_source(failing: Service) -> None:
    assert failing.request("POST", "/mutate", json={}).status_code == 400


def test_answer_that_cannot_be_logged_is_sent(
    service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise UnexpectedError("of the log")

    monkeypatch.setattr(ReviewLog, "record", fail)
    caplog.set_level(logging.INFO)
    service.source.view = view(SLEEPING, namespaces=KNOWN)
    service.review(INITLESS)
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None
