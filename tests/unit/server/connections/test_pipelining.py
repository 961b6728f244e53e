"""Tests of several requests on one connection, and of data that looks like a request."""

from __future__ import annotations

from tests.support.http_client import mutate, review_in
from tests.support.protocol_server import (
    LIVEZ,
    REVIEW,
    WHOLE,
    NewNamespaces,
    Served,
    Start,
    review_with_uid,
    uid_in,
)
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.server.connections.protocol import State


def test_rest_of_a_body_after_an_early_answer_is_not_a_request(served: Served) -> None:
    client = served.connect()
    client.send(f"POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: {len(WHOLE)}\r\n\r\n")
    answer = client.answer()
    assert answer.status == 404
    assert answer.getheader("connection") == "close"
    client.send(WHOLE)
    assert client.is_closed()
    assert served.reviews == 0


def test_rest_of_a_review_after_an_early_answer_is_not_a_request(served: Served) -> None:
    client = served.connect()
    body = mutate(REVIEW).partition(b"\r\n\r\n")[2]
    client.send(mutate(body[:-100], "?timeout=200ms", length=len(body) - 100 + len(WHOLE)))
    answer = client.answer()
    assert "DeadlineExceeded" in review_in(answer)["warnings"][0]
    assert answer.getheader("connection") == "close"
    client.send(WHOLE)
    assert client.is_closed()
    assert served.reviews == 1


def test_header_value_that_looks_like_a_review_is_not_a_request(served: Served) -> None:
    client = served.connect()
    client.send("GET /livez HTTP/1.1\r\nX: ")
    served.await_state(State.RECEIVING)
    client.send(WHOLE)
    assert client.answer().body == b"ok"  # type: ignore[attr-defined]
    assert client.is_closed()
    assert served.reviews == 0


def test_bytes_behind_a_review_get_no_answer(start: Start, source: ManifestsSource) -> None:
    """The first review waits for its namespace, or is answered at once."""
    for behind in (review_with_uid(1), LIVEZ, WHOLE[:60]):
        for served in (start(NewNamespaces(source)), start()):
            client = served.connect()
            client.send(review_with_uid(0) + behind)
            answer = client.answer()
            assert uid_in(answer) == "0"
            assert answer.getheader("connection") == "close"
            assert client.is_closed()
            assert served.reviews == 1
            assert served.delegated.requests == 0


def test_requests_behind_one_that_is_handed_over_are_not_begun(served: Served) -> None:
    client = served.connect()
    client.send(b"GET /mutate HTTP/1.1\r\nHost: x\r\n\r\n" + review_with_uid(2))
    assert client.answer().status == 405
    assert client.is_closed()
    assert served.reviews == 0


def test_requests_behind_an_answer_that_closes_are_not_begun(start: Start) -> None:
    served = start(goaway_chance=1)
    client = served.connect()
    client.send(review_with_uid(0) + review_with_uid(1) + LIVEZ)
    answer = client.answer()
    assert uid_in(answer) == "0"
    assert answer.getheader("connection") == "close"
    assert client.is_closed()
    assert served.reviews == 1
