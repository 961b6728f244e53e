"""Tests of several requests on one connection, and of data that looks like a request."""

from __future__ import annotations

from tests.support.http_client import review_in
from tests.support.protocol_server import (
    LIVEZ,
    WHOLE,
    NewNamespaces,
    Served,
    Start,
    is_settled,
    review_with_uid,
    uid_in,
)
from tests.support.waiting import await_that
from webhook.cluster.manifest_source import ManifestsSource


def test_rest_of_a_body_after_an_early_answer_is_not_a_request(served: Served) -> None:
    client = served.connect()
    client.send(f"POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: {len(WHOLE)}\r\n\r\n")
    assert client.answer().status == 404
    client.send(WHOLE)
    client.send(review_with_uid(1))
    assert uid_in(client.answer()) == "1"
    client.send(review_with_uid(2))
    assert uid_in(client.answer()) == "2"
    assert served.reviews == 2


def test_connection_stays_open_if_the_rest_of_a_body_arrives(served: Served) -> None:
    client = served.connect()
    client.send("POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
    assert client.answer().status == 404
    (connection,) = served.connections
    await_that(lambda: connection._timer is not None, "the timeout runs")
    client.send("67890")
    await_that(lambda: connection._timer is None, "the timeout is cancelled")
    assert is_settled(client)
    assert served.slow_path.requests == 0


def test_header_value_that_looks_like_a_review_is_not_a_request(served: Served) -> None:
    client = served.connect()
    client.send("GET /livez HTTP/1.1\r\nX: ")
    await_that(lambda: served.connections and served.connections[-1]._in_head, "it has begun")
    client.send(WHOLE)
    assert client.answer().body == b"ok"  # type: ignore[attr-defined]
    assert is_settled(client)
    assert served.reviews == 1


def test_pipelined_reviews_take_the_slow_path_in_order(served: Served) -> None:
    client = served.connect()
    client.send(b"".join(map(review_with_uid, range(4))))
    assert [uid_in(client.answer()) for _ in range(4)] == ["0", "1", "2", "3"]
    # None on the fast path, so that other clients are read in between.
    assert served.slow_path.requests == 4
    client.send(review_with_uid(4))
    assert uid_in(client.answer()) == "4"
    assert served.slow_path.requests == 4


def test_pipelined_requests_of_several_routes_are_answered_in_order(
    start: Start, source: ManifestsSource
) -> None:
    served = start(NewNamespaces(source))
    client = served.connect()
    # The first waits for its namespace, and the last must not overtake it.
    client.send(
        review_with_uid(0)
        + LIVEZ
        + review_with_uid(1)
        + b"GET /mutate HTTP/1.1\r\nHost: x\r\n\r\n"
        + review_with_uid(2)
    )
    assert uid_in(client.answer()) == "0"
    assert client.answer().body == b"ok"  # type: ignore[attr-defined]
    assert uid_in(client.answer()) == "1"
    assert client.answer().status == 405
    assert client.is_closed()
    other = served.connect()
    other.send(LIVEZ + review_with_uid(3) + review_with_uid(4))
    assert other.answer().status == 200
    assert [uid_in(other.answer()) for _ in range(2)] == ["3", "4"]
    assert is_settled(other)


def test_segment_with_the_end_and_the_beginning_of_reviews_is_read(served: Served) -> None:
    client = served.connect()
    both = WHOLE + review_with_uid(1)
    for cut in (len(WHOLE) + 10, len(both) - 100):
        client.send(both[:cut])
        assert "patch" in review_in(client.answer())
        client.send(both[cut:])
        assert uid_in(client.answer()) == "1"
    before = served.slow_path.requests
    client.send(WHOLE[:-100])
    await_that(lambda: served.slow_path.requests == before + 1, "it has begun")
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
