"""Whatever comes, and whatever goes wrong: an allowed review, never a 5xx."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.factories import container, namespace, policy, view
from tests.support.reviews import UID, patch_of, review
from tests.support.strategies import JUNK, PODS, VIEWS
from webhook.cluster.manifest_source import ManifestsSource
from webhook.cluster.snapshot import Snapshot
from webhook.core.admission.decide import OperatorSettings
from webhook.core.admission.handler import Answer
from webhook.core.cluster.view import Namespace
from webhook.server.admission import AdmissionHandler
from webhook.server.app import create_app
from webhook.server.drain import Drain

INITLESS = {"metadata": {}, "spec": {"containers": [container("main", "/x")]}}
SLEEPING = policy("sleep", remedies={"postInitSleep": {}})
TWO = (SLEEPING, policy("class", remedies={"runtimeClass": {"name": "gone"}}))
KNOWN = [namespace("ci")]


class Asked:
    """The application on one event loop, over a view that the test may change."""

    def __init__(self, source: ManifestsSource, runner: asyncio.Runner) -> None:
        self.source = source
        self._runner = runner
        self._app = create_app(
            source,
            OperatorSettings(linger_image="registry.example/linger:1"),
            certificate_expires=lambda: datetime.now(UTC),
            drain=Drain(10, 45),
        )

    def request(self, method: str, path: str, **content: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            # What a server would make a 500 of.
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="https://x") as client:
                return await client.request(method, path, **content)

        return self._runner.run(send())

    def review(self, pod: Any) -> dict[str, Any]:
        """The answer to the review of a pod, after a look at what holds of each."""
        answer = self.request("POST", "/mutate", json=review({}, namespace="ci", object=pod))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        assert found["response"]["uid"] == UID
        assert found["response"]["allowed"] is True
        return found


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with asyncio.Runner() as runner:
        yield Asked(ManifestsSource(tmp_path_factory.mktemp("manifests")), runner)


@examples(200)
@given(pod=st.one_of(PODS, PODS, PODS, JUNK), seen=VIEWS)
@example(pod=INITLESS, seen=view(SLEEPING, namespaces=KNOWN))
@example(pod=INITLESS, seen=view(*TWO, namespaces=KNOWN))
@example(pod=INITLESS, seen=replace(view(SLEEPING), invents_namespaces=False))
def test_any_pod_under_any_policies_is_allowed(asked: Asked, pod: Any, seen: Snapshot) -> None:
    asked.source.view = seen
    warnings = asked.review(pod)["response"].get("warnings", [])
    assert not [warning for warning in warnings if "InternalError" in warning]


class DefectError(Exception):
    pass


@pytest.fixture
def failing(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """With a source that fails in a way that it should not, when it is asked for a namespace."""

    async def fetch_namespace(_name: str, _timeout: float) -> Namespace | None:
        raise DefectError("of the source")

    asked.source.view = replace(view(SLEEPING), invents_namespaces=False)
    monkeypatch.setattr(asked.source, "fetch_namespace", fetch_namespace)
    return asked


def errors(asked: Asked) -> float:
    name = 'podsettle_outcomes_total{reason="InternalError",remedy=""} '
    lines = asked.request("GET", "/metrics").text.splitlines()
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def a_defect_was_answered(asked: Asked, caplog: pytest.LogCaptureFixture, why: str) -> None:
    before = errors(asked)
    answer = asked.review(INITLESS)
    assert patch_of(answer) == []
    assert answer["response"]["auditAnnotations"] == {"skipped": "InternalError"}
    assert why in answer["response"]["warnings"][0]
    assert errors(asked) == before + 1
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert UID in record.getMessage()
    assert record.exc_info is not None
    assert why in str(record.exc_info[1])


def test_a_source_that_fails_costs_the_pod_its_remedies_alone(
    failing: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    a_defect_was_answered(failing, caplog, "of the source")


def test_a_look_at_the_answer_that_fails_does_no_more(
    asked: Asked, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown_namespace(_answer: Answer) -> str | None:
        raise IndexError("no outcomes")

    monkeypatch.setattr(Answer, "unknown_namespace", property(unknown_namespace))
    asked.source.view = view(SLEEPING, namespaces=KNOWN)
    a_defect_was_answered(asked, caplog, "no outcomes")


def test_what_is_no_review_is_refused_then_too(failing: Asked) -> None:
    assert failing.request("POST", "/mutate", json={}).status_code == 400


def test_an_answer_that_cannot_be_logged_is_given(
    asked: Asked, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DefectError("of the log")

    monkeypatch.setattr(AdmissionHandler, "_log", fail)
    asked.source.view = view(SLEEPING, namespaces=KNOWN)
    asked.review(INITLESS)
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None
