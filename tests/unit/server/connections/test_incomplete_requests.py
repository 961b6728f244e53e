"""Tests of reviews that arrive in pieces."""

from __future__ import annotations

import pytest

from tests.support.factories import container, pod
from tests.support.http_client import mutate, review_in
from tests.support.protocol_server import WHOLE, Served
from tests.support.reviews import review
from tests.support.waiting import await_that
from webhook.server.connections.protocol import State


@pytest.mark.parametrize("length", [10, 40_000, 300_000])
def test_review_in_two_pieces_is_answered_by_the_protocol(served: Served, length: int) -> None:
    client = served.connect()
    served.send_in_two(client, mutate(review(pod(container("a", "x" * length)))))
    assert "auditAnnotations" in review_in(client.answer())
    assert served.delegated.requests == 0
    assert served.reviews == 1
    # The client can read the answer before the server has counted it as sent.
    in_flight = served.server.components.in_flight
    await_that(lambda: in_flight.requests == 0, "the review is no longer in flight")


def test_incomplete_review_is_answered_during_shutdown(served: Served) -> None:
    client = served.connect()
    client.send(WHOLE[:-100])
    connection = served.await_state(State.RECEIVING)
    connection._loop.call_soon_threadsafe(connection.shutdown)
    client.send(WHOLE[-100:])
    answer = client.answer()
    assert "patch" in review_in(answer)
    assert answer.getheader("connection") == "close"
    assert client.is_closed()


def test_client_that_disconnects_during_its_body_leaves_nothing(served: Served) -> None:
    client = served.connect()
    client.send(WHOLE[:-100])
    served.await_state(State.RECEIVING)
    client.close()
    await_that(lambda: not served.connections, "the connection is gone")
    assert served.server.components.in_flight.requests == 0
    # The server's thread may be about to return them.
    budget = served.server.components.review_budget
    await_that(lambda: budget.used_bytes == 0, "the bytes are returned")
    assert served.reviews == 0
