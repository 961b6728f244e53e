"""Load shedding: clients that send a lot, or that stop sending or reading, on a real server."""

from __future__ import annotations

import copy
import itertools
import json
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from http.client import IncompleteRead

import pytest

from tests.support.http_client import Client, InProcess, mutate, review_in
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that
from webhook.server.components import Components
from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.reviews.body import ReviewBody
from webhook.server.reviews.handler import ReviewTiming

REVIEW = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))
LONG = json.dumps(REVIEW).encode().ljust(DEFAULT_LIMITS.max_review_bytes)
WHOLE = mutate(LONG)
WAITING = mutate(LONG, "?timeout=30s")
"""The same with the longest deadline."""
MIB = 1024 * 1024


Serve = Callable[..., InProcess]


@pytest.fixture
def server(serve: Serve) -> InProcess:
    return serve()


@pytest.fixture
def components(server: InProcess) -> Components:
    return server.components


def warning(client: Client) -> str:
    response = review_in(client.answer())
    assert "patch" not in response
    text: str = response["warnings"][0]
    return text


def is_settled(client: Client) -> bool:
    client.send(mutate(REVIEW))
    return "patch" in review_in(client.answer())


# MemoryBudget


def test_incomplete_bodies_are_limited_by_the_memory_budget(serve: Serve) -> None:
    server = serve(body_timeout_seconds=3600)
    components = server.components
    components.review_budget.limit_bytes = 4 * MIB
    holding = [server.connect() for _ in range(3)]
    for client in holding:
        client.send(WAITING[:MIB])
    await_that(lambda: components.review_budget.used_bytes > 2.9 * MIB, "the bodies have arrived")
    late = server.connect()
    late.send(WHOLE[: 2 * MIB])
    assert "podsettle: Overloaded: " in warning(late)
    # Its bytes are returned, and its connection ends, because its body is incomplete.
    await_that(lambda: components.review_budget.used_bytes <= 3 * MIB, "the bytes are returned")
    # The other bodies are complete.
    for client in holding[1:]:
        client.close()
    await_that(lambda: components.review_budget.used_bytes <= MIB, "one body fits into the budget")
    components.review_budget.limit_bytes = 5 * MIB
    holding[0].send(WAITING[MIB:])
    assert "patch" in review_in(holding[0].answer())
    assert components.review_budget.used_bytes == 0


def test_short_review_is_answered_with_an_exhausted_budget(
    components: Components, server: InProcess
) -> None:
    components.review_budget.limit_bytes = MIB
    holding = server.connect()
    holding.send(WHOLE[:MIB])
    await_that(lambda: components.review_budget.used_bytes > 0.9 * MIB, "the body has arrived")
    components.review_budget.limit_bytes = 0
    assert is_settled(server.connect())
    slow = server.connect()
    whole = mutate(REVIEW)
    assert len(whole) < DEFAULT_LIMITS.guaranteed_body_bytes
    for part in (whole[:-100], whole[-100:]):
        slow.send(part)
    assert "patch" in review_in(slow.answer())


def long_review(length: int) -> bytes:
    """A review of a pod whose patch is equally long, because a container is wrapped."""
    long = copy.deepcopy(REVIEW)
    long["request"]["object"]["spec"]["initContainers"][0]["command"].append("y" * length)
    return json.dumps(long).encode()


SLOW_ANSWER = mutate(long_review(600_000))
"""The answer has 800 KB, and the operating system buffers a part of it only."""


def reading_little(server: InProcess) -> Client:
    client = server.connect()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    return client


def test_answer_counts_against_the_budget_until_it_is_read(
    components: Components, server: InProcess
) -> None:
    client = reading_little(server)
    client.send(SLOW_ANSWER)
    await_that(lambda: components.review_budget.used_bytes > 700_000, "the answer is made")
    # In base64, and nothing else.
    assert components.review_budget.used_bytes == pytest.approx(800_000, rel=0.02)
    assert "patch" in review_in(client.answer())
    await_that(lambda: components.review_budget.used_bytes == 0, "the bytes are returned")
    assert is_settled(client)


def test_client_that_reads_no_answer_is_disconnected(serve: Serve) -> None:
    server = serve(write_timeout_seconds=0.2)
    components = server.components
    client = reading_little(server)
    client.send(SLOW_ANSWER)
    # On a busy machine, this thread may not run while the answer is held.
    await_that(lambda: server.drain.reviews == 1, "the review has arrived")
    await_that(lambda: not components.review_server.connections, "the client is disconnected")
    await_that(lambda: components.review_budget.used_bytes == 0, "the answer is dropped")
    with pytest.raises((IncompleteRead, ConnectionError, ssl.SSLError)):
        client.answer()


def test_client_that_reads_none_of_many_short_answers_is_disconnected(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """The task that waits to write the next answer ends as well."""
    server = serve(write_timeout_seconds=0.2)
    components = server.components
    client = reading_little(server)
    endless = itertools.repeat(mutate(long_review(30_000)))
    with pytest.raises((ConnectionError, ssl.SSLError)):
        deque(map(client.send, endless), maxlen=0)
    await_that(lambda: components.in_flight.requests == 0, "all requests have ended")
    await_that(lambda: components.review_budget.used_bytes == 0, "the bytes are returned")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(("length", "settled"), [(200_000, True), (300_000, False)])
async def test_long_review_is_answered_unread_with_an_exhausted_budget(
    components: Components, length: int, settled: bool
) -> None:
    components.review_budget.limit_bytes = 0
    body = ReviewBody(components.review_budget)
    body.feed(long_review(length))
    body.finish()
    answer = await components.handler.handle(body, ReviewTiming(time.monotonic(), 7.0), "")
    body.release()
    answered = json.loads(answer.body)["response"]
    assert answered["allowed"] is True
    assert ("patch" in answered) is settled
    assert settled or "podsettle: Overloaded: " in answered["warnings"][0]


def test_abandoned_body_is_returned_to_the_budget(
    components: Components, server: InProcess
) -> None:
    client = server.connect()
    client.send(WHOLE[:MIB])
    await_that(lambda: components.review_budget.used_bytes, "the body has arrived")
    client.close()
    await_that(lambda: components.review_budget.used_bytes == 0, "the bytes are returned")
    client = server.connect()
    client.send(mutate(LONG, "?timeout=200ms")[:MIB])
    assert "DeadlineExceeded" in warning(client)
    # The rest of the body may arrive after the answer.
    await_that(lambda: components.review_budget.used_bytes == 0, "the bytes are returned")


def test_bodies_of_previews_have_a_budget_of_their_own(
    components: Components, server: InProcess
) -> None:
    head = f"POST /preview HTTP/1.1\r\nHost: x\r\nContent-Length: {2 * MIB}\r\n\r\n"
    components.preview_budget.limit_bytes = MIB
    waiting = server.connect()
    waiting.send(head + "#" * (MIB - 1000))
    await_that(lambda: components.preview_budget.used_bytes > 0.9 * MIB, "the body has arrived")
    # The head of a connection that is handed over counts, and its body does not.
    assert components.review_budget.used_bytes == len(head)
    client = server.connect()
    client.send(head + "#" * 10_000)
    assert client.answer().status == 503
    waiting.close()
    await_that(lambda: components.preview_budget.used_bytes == 0, "the bytes are returned")


# Time


def test_body_timeout_applies_even_if_the_query_has_a_longer_one(serve: Serve) -> None:
    server = serve(body_timeout_seconds=0.25)
    client = server.connect()
    client.send(mutate(REVIEW, "?timeout=30s")[:-100])
    assert " bytes of the review arrived within 0.25 s" in warning(client)


def test_answer_that_its_client_does_not_read_counts_as_load(
    components: Components, server: InProcess
) -> None:
    client = reading_little(server)
    client.send(SLOW_ANSWER)
    await_that(lambda: components.in_flight.reviews == 1, "the answer waits for the client")
    assert "patch" in review_in(client.answer())
    await_that(lambda: components.in_flight.reviews == 0, "the answer is sent")
