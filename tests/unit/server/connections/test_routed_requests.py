"""Tests of requests that the protocol delegates, and of reviews that it cannot answer at once."""

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
    REVIEW,
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
from webhook.server.connections.protocol import State
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


def test_review_with_a_chunked_body_is_delegated(served: Served) -> None:
    client = served.connect()
    body = json.dumps(REVIEW).encode()
    head = (
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    chunks = (body[:1000], body[1000:1001], body[1001:])
    client.send(head + b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n")
    answer = client.answer()
    assert "patch" in review_in(answer)
    assert answer.getheader("connection") == "close"
    assert client.is_closed()
    assert served.delegated.requests == 1


def test_review_with_headers_in_pieces_is_not_delegated(served: Served) -> None:
    client = served.connect()
    client.send(WHOLE[:20])
    served.await_state(State.RECEIVING)
    client.send(WHOLE[20:])
    assert "patch" in review_in(client.answer())
    assert is_settled(client)
    assert served.delegated.requests == 0


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
@pytest.mark.parametrize("wish", [b"close", b"keep-alive", None])
def test_connection_closes_if_the_client_asks_for_it(
    served: Served, version: bytes, wish: bytes | None
) -> None:
    request = WHOLE.replace(b"HTTP/1.1", version)
    if wish:
        request = request.replace(b"Host: x", b"Host: x\r\nConnection: " + wish)
    client = served.connect()
    client.send(request)
    answer = client.answer()
    assert "patch" in review_in(answer)
    stays = version == b"HTTP/1.1" and wish != b"close"
    assert answer.getheader("connection") == (None if stays else "close")
    assert is_settled(client) if stays else client.is_closed()


@pytest.mark.parametrize("with_body", [True, False])
def test_expect_100_continue_is_answered(served: Served, with_body: bool) -> None:
    client = served.connect()
    request = WHOLE.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue")
    head, body = request.split(b"\r\n\r\n")
    client.send(head + b"\r\n\r\n" + (body if with_body else b""))
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert client.socket.recv(len(interim)) == interim
    client.send(b"" if with_body else body)
    assert "patch" in review_in(client.answer())


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


def test_malformed_chunked_body_is_answered_400_and_closes(served: Served) -> None:
    client = served.connect()
    client.send(
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\nno length\r\n"
    )
    assert client.answer().status == 400
    assert client.is_closed()
