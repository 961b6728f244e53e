"""Requests that are handed over to the application, and reviews that wait for a look-up."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import yaml

from tests.support.factories import SETTINGS, container, pod, policy_document
from tests.support.http_client import mutate, review_in
from tests.support.image_factories import image_policy
from tests.support.protocol_server import (
    SETTLED,
    WHOLE,
    NewNamespaces,
    Served,
    Start,
    is_settled,
)
from tests.support.reviews import review
from tests.support.server_fixtures import make_components
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.handler import Answer
from webhook.server.reviews.handler import ReviewTiming


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (WHOLE.replace(b"application/json", b"text/plain"), 415),
        (WHOLE.replace(b"Content-Type", b"Content-Typo"), 415),
        (WHOLE.replace(b"POST", b"PUT"), 405),
        (WHOLE.replace(b"/mutate", b"/elsewhere"), 404),
        (WHOLE.replace(b"/mutate", b"/%6dutate"), 200),
        (mutate(b"{}"), 400),
        (mutate(b""), 400),
    ],
    ids=lambda part: str(part)[:40],
)
def test_other_requests_are_answered_by_the_application(
    served: Served, request_: bytes, status: int
) -> None:
    client = served.connect()
    client.send(request_)
    assert client.answer().status == status
    refused = {n: v for n, v in served.metrics().items() if "requests_refused" in n}
    if status in (200, 404):
        assert not refused
    else:
        assert refused == {f'podsettle_requests_refused_total{{status="{status}"}}': 1}


def test_unknown_namespace_is_looked_up_by_the_protocol(
    start: Start, source: ManifestsSource
) -> None:
    young = NewNamespaces(source)
    served = start(young)
    client = served.connect()
    client.send(WHOLE)
    assert "patch" in review_in(client.answer())
    assert young.fetched == [SETTLED["metadata"]["namespace"]]
    assert (served.delegated.requests, served.reviews) == (0, 1)
    assert served.metrics()['podsettle_reviews_total{result="patched"}'] == 1
    assert served.metrics()['podsettle_reviews_total{result="unchanged"}'] == 0
    assert is_settled(client)
    assert served.delegated.requests == 0


def test_reviews_that_need_image_look_ups_are_not_answered_at_once(tmp_path: Path) -> None:
    document = policy_document(**image_policy("registry.example"))
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(document))
    source = ManifestsSource(tmp_path)
    source.refresh()
    components = make_components(source, settings=SETTINGS)

    def handle_now(**spec: Any) -> bytes | None:
        body = json.dumps(review(pod(restartPolicy="Never", **spec))).encode()
        timing = ReviewTiming(monotonic(), deadline_seconds=7.0)
        return components.handler.handle_now(body, timing)

    assert handle_now(containers=[container("main", "/x")]) is not None
    assert components.drain.reviews == 1
    assert handle_now(containers=[container("main", image="registry.example/a:1")]) is None
    assert components.drain.reviews == 1


def test_review_is_answered_if_the_first_attempt_raises(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unknown_namespace(_answer: Answer) -> str | None:
        raise IndexError("no outcomes")

    monkeypatch.setattr(Answer, "unknown_namespace", property(unknown_namespace))
    client = served.connect()
    client.send(WHOLE)
    assert "no outcomes" in review_in(client.answer())["warnings"][0]
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    assert served.metrics()['podsettle_outcomes_total{reason="InternalError",remedy=""}'] == 1
