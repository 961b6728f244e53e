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
    is_settled,
    review_with_uid,
    uid_in,
)
from webhook.cluster.manifest_source import ManifestsSource
from webhook.server.connections.protocol import State


def test_rest_of_a_delegated_body_after_an_early_answer_is_not_a_request(served: Served) -> None:
    client = served.connect()
    client.send(f"POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: {len(WHOLE)}\r\n\r\n")
    answer = client.answer()
    assert answer.status == 404
    assert answer.getheader("connection") == "close"
    served.await_state(State.DISCARDING)
    client.send(WHOLE)
    assert client.is_closed()
    assert served.reviews == 0


def test_rest_of_a_review_after_an_early_answer_is_not_a_request(served: Served) -> None:
    client = served.connect()
    body = mutate(REVIEW).partition(b"\r\n\r\n")[2]
    client.send(mutate(body[:-100], "?timeout=200ms", length=len(body) - 100 + len(WHOLE)))
    assert "DeadlineExceeded" in review_in(client.answer())["warnings"][0]
    served.await_state(State.DISCARDING)
    client.send(WHOLE)
    served.await_state(State.IDLE)
    client.send(review_with_uid(1))
    assert uid_in(client.answer()) == "1"
    assert served.reviews == 2
    assert served.delegated.requests == 0


def test_header_value_that_looks_like_a_review_is_not_a_request(served: Served) -> None:
    client = served.connect()
    client.send("GET /livez HTTP/1.1\r\nX: ")
    served.await_state(State.HEAD)
    client.send(WHOLE)
    assert client.answer().body == b"ok"  # type: ignore[attr-defined]
    assert client.is_closed()
    assert served.reviews == 0


def test_pipelined_reviews_are_answered_in_order(served: Served) -> None:
    client = served.connect()
    for _ in range(2):
        client.send(b"".join(map(review_with_uid, range(4))))
        assert [uid_in(client.answer()) for _ in range(4)] == ["0", "1", "2", "3"]
    assert served.delegated.requests == 0


def test_pipelined_reviews_wait_for_a_look_up_of_the_first(
    start: Start, source: ManifestsSource
) -> None:
    served = start(NewNamespaces(source))
    client = served.connect()
    client.send(b"".join(map(review_with_uid, range(3))))
    assert [uid_in(client.answer()) for _ in range(3)] == ["0", "1", "2"]
    assert is_settled(client)


def test_requests_behind_a_delegated_one_are_not_begun(
    start: Start, source: ManifestsSource
) -> None:
    served = start(NewNamespaces(source))
    client = served.connect()
    # The first waits for its namespace, and the others must not overtake it.
    client.send(review_with_uid(0) + review_with_uid(1) + LIVEZ + review_with_uid(2))
    assert [uid_in(client.answer()) for _ in range(2)] == ["0", "1"]
    answer = client.answer()
    assert answer.body == b"ok"  # type: ignore[attr-defined]
    assert answer.getheader("connection") == "close"
    assert client.is_closed()
    assert served.reviews == 2
    other = served.connect()
    other.send(b"GET /mutate HTTP/1.1\r\nHost: x\r\n\r\n" + review_with_uid(2))
    assert other.answer().status == 405
    assert other.is_closed()
    assert served.reviews == 2


def test_segment_with_the_end_and_the_beginning_of_reviews_is_read(served: Served) -> None:
    client = served.connect()
    both = WHOLE + review_with_uid(1)
    for cut in (len(WHOLE) + 10, len(both) - 100):
        client.send(both[:cut])
        assert "patch" in review_in(client.answer())
        client.send(both[cut:])
        assert uid_in(client.answer()) == "1"
    client.send(WHOLE[:-100])
    served.await_state(State.BODY)
    client.send(WHOLE[-100:] + review_with_uid(2) + review_with_uid(3)[:-100])
    assert "patch" in review_in(client.answer())
    assert uid_in(client.answer()) == "2"
    client.send(review_with_uid(3)[-100:])
    assert uid_in(client.answer()) == "3"
    assert is_settled(client)


def test_requests_behind_an_answer_that_closes_are_not_begun(start: Start) -> None:
    served = start(goaway_chance=1)
    client = served.connect()
    client.send(review_with_uid(0) + review_with_uid(1) + LIVEZ)
    answer = client.answer()
    assert uid_in(answer) == "0"
    assert answer.getheader("connection") == "close"
    assert client.is_closed()
    assert served.reviews == 1
