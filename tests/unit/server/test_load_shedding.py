"""What clients that send much, or nothing more, can take from the others: on a real server."""

from __future__ import annotations

import copy
import itertools
import json
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from http.client import HTTPResponse, IncompleteRead
from typing import Any

import pytest

from tests.support.http_client import Client, InProcess, in_process, mutate, review_in
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that
from webhook.cluster.manifest_source import ManifestsSource
from webhook.core.admission.decide import OperatorSettings
from webhook.server import admission as mutate_module
from webhook.server import protocol
from webhook.server.app import Application, create_app
from webhook.server.drain import Drain
from webhook.server.request_body import GUARANTEED_BODY_BYTES, MAX_BODY_BYTES

REVIEW = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))
LONG = json.dumps(REVIEW).encode().ljust(MAX_BODY_BYTES)
WHOLE = mutate(LONG)
MIB = 1024 * 1024


@pytest.fixture
def app(source: ManifestsSource, drain: Drain) -> Application:
    return create_app(
        source,
        OperatorSettings(linger_image="registry.example/linger:1"),
        certificate_expires=lambda: datetime.now(UTC),
        drain=drain,
    )


@pytest.fixture
def server(app: Application, drain: Drain) -> Iterator[InProcess]:
    with in_process(app, drain) as running:
        yield running


@pytest.fixture
def drain() -> Drain:
    return Drain(idle_seconds=3600, timeout_seconds=3600)


def warning(client: Client) -> str:
    response = review_in(client.answer())
    assert "patch" not in response
    text: str = response["warnings"][0]
    return text


def is_settled(client: Client) -> bool:
    client.send(mutate(REVIEW))
    return "patch" in review_in(client.answer())


# MemoryBudget


def test_bodies_that_do_not_end_get_no_more_than_their_room(
    app: Application, server: InProcess
) -> None:
    app.state.review_budget.limit_bytes = 4 * MIB
    holding = [server.connect() for _ in range(3)]
    for client in holding:
        client.send(WHOLE[:MIB])
    await_that(lambda: app.state.review_budget.used_bytes > 2.9 * MIB, "they have come")
    late = server.connect()
    late.send(WHOLE[: 2 * MIB])
    assert "podsettle: Overloaded: " in warning(late)
    # What it held is free again, and what it still sends is not kept.
    await_that(lambda: app.state.review_budget.used_bytes <= 3 * MIB, "it is given back")
    late.send(WHOLE[2 * MIB :])
    assert is_settled(late)
    assert app.state.review_budget.used_bytes <= 3 * MIB
    # The others have lost nothing.
    for client in holding[1:]:
        client.close()
    await_that(
        lambda: app.state.review_budget.used_bytes <= MIB, "there is room for the rest of one"
    )
    app.state.review_budget.limit_bytes = 5 * MIB
    holding[0].send(WHOLE[MIB:])
    assert "patch" in review_in(holding[0].answer())
    assert app.state.review_budget.used_bytes == 0


def test_a_review_that_comes_at_once_needs_no_room(app: Application, server: InProcess) -> None:
    app.state.review_budget.limit_bytes = MIB
    holding = server.connect()
    holding.send(WHOLE[:MIB])
    await_that(lambda: app.state.review_budget.used_bytes > 0.9 * MIB, "it has come")
    app.state.review_budget.limit_bytes = 0
    assert is_settled(server.connect())
    slow = server.connect()
    whole = mutate(REVIEW)
    assert len(whole) < GUARANTEED_BODY_BYTES
    for part in (whole[:-100], whole[-100:]):
        slow.send(part)
    assert "patch" in review_in(slow.answer())


def long_review(length: int) -> bytes:
    """Of a pod whose patch is as long: a container is wrapped."""
    long = copy.deepcopy(REVIEW)
    long["request"]["object"]["spec"]["initContainers"][0]["command"].append("y" * length)
    return json.dumps(long).encode()


def reading_little(server: InProcess) -> Client:
    client = server.connect()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    return client


def test_an_answer_takes_up_room_until_it_is_read(app: Application, server: InProcess) -> None:
    client = reading_little(server)
    client.send(mutate(long_review(3 * MIB)))
    await_that(lambda: app.state.review_budget.used_bytes > 3.5 * MIB, "the answer is made")
    assert app.state.review_budget.used_bytes == pytest.approx(
        4 * MIB, rel=0.02
    )  # in base64; nothing else
    assert "patch" in review_in(client.answer())
    await_that(lambda: app.state.review_budget.used_bytes == 0, "it is given back")
    assert is_settled(client)


def test_whoever_does_not_read_an_answer_is_hung_up_on(
    app: Application, server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "WRITE_TIMEOUT_SECONDS", 2)
    client = reading_little(server)
    client.send(mutate(long_review(3 * MIB)))
    await_that(lambda: app.state.review_budget.used_bytes > 3.5 * MIB, "the answer is made")
    await_that(lambda: app.state.review_budget.used_bytes == 0, "it is given up")
    with pytest.raises((IncompleteRead, ConnectionError, ssl.SSLError)):
        client.answer()


def test_so_is_whoever_reads_none_of_many_short_answers(
    app: Application,
    server: InProcess,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next answer waits to begin then: no task is left waiting, and nothing else is sent."""
    monkeypatch.setattr(protocol, "WRITE_TIMEOUT_SECONDS", 0.2)
    client = reading_little(server)
    endless = itertools.repeat(mutate(long_review(30_000)))
    with pytest.raises((ConnectionError, ssl.SSLError)):
        deque(map(client.send, endless), maxlen=0)
    await_that(lambda: app.state.in_flight.count == 0, "all is given up")
    assert app.state.review_budget.used_bytes == 0
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_whoever_reads_on_is_not_hung_up_on(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes in all: whatever is read begins the patience anew."""
    monkeypatch.setattr(protocol, "WRITE_TIMEOUT_SECONDS", 3)
    client = reading_little(server)
    client.send(mutate(long_review(3 * MIB)))
    begun = time.monotonic()
    answer = HTTPResponse(client.socket)
    answer.begin()
    while answer.length:
        assert answer.read(MIB // 4)
        time.sleep(0.3)
    assert time.monotonic() - begun > protocol.WRITE_TIMEOUT_SECONDS
    assert is_settled(client)


@pytest.mark.parametrize(("length", "settled"), [(200_000, True), (300_000, False)])
async def test_in_a_full_room_nothing_long_is_decided_on(
    app: Application, length: int, settled: bool
) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": long_review(length)}

    async def send(message: Any) -> None:
        sent.append(message)

    app.state.review_budget.limit_bytes = 0
    headers = [(b"content-type", b"application/json")]
    scope = {"method": "POST", "path": "/mutate", "query_string": b"", "headers": headers}
    await app.mutate(scope, receive, send)
    answered = json.loads(b"".join(message.get("body", b"") for message in sent))["response"]
    assert answered["allowed"] is True
    assert ("patch" in answered) is settled
    assert settled or "podsettle: Overloaded: " in answered["warnings"][0]


def test_what_is_given_up_gives_its_room_back(app: Application, server: InProcess) -> None:
    client = server.connect()
    client.send(WHOLE[:MIB])
    await_that(lambda: app.state.review_budget.used_bytes, "it has come")
    client.close()
    await_that(lambda: app.state.review_budget.used_bytes == 0, "it is given back")
    client = server.connect()
    client.send(mutate(LONG, "?timeout=200ms")[:MIB])
    assert "DeadlineExceeded" in warning(client)
    assert app.state.review_budget.used_bytes == 0


def test_bodies_of_previews_are_bounded_apart_from_those_of_reviews(
    app: Application, server: InProcess
) -> None:
    head = f"POST /preview HTTP/1.1\r\nHost: x\r\nContent-Length: {2 * MIB}\r\n\r\n"
    app.state.preview_budget.limit_bytes = MIB
    waiting = server.connect()
    waiting.send(head + "#" * (MIB - 1000))
    await_that(lambda: app.state.preview_budget.used_bytes > 0.9 * MIB, "it has come")
    assert app.state.review_budget.used_bytes == 0
    client = server.connect()
    client.send(head + "#" * 10_000)
    assert client.answer().status == 503
    waiting.close()
    await_that(lambda: app.state.preview_budget.used_bytes == 0, "it is given back")


# Time


def test_the_query_does_not_say_how_long_a_body_may_take(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutate_module, "BODY_TIMEOUT_SECONDS", 0.25)
    client = server.connect()
    client.send(mutate(REVIEW, "?timeout=30s")[:-100])
    assert " bytes came in 0.25 s, and not the end" in warning(client)


# InFlight


def test_clients_that_send_nothing_more_are_no_load(
    app: Application, server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "DRAIN_BODY_TIMEOUT_SECONDS", 60)
    app.state.in_flight.limit = 3
    trickling = [server.connect() for _ in range(10)]
    for client in trickling[:5]:
        client.send(mutate(REVIEW, "?timeout=30s")[:-100])
    for client in trickling[5:]:
        client.send("POST /preview HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nkind")
    await_that(lambda: app.state.in_flight.count == 10, "they are under way")
    assert is_settled(server.connect())
    for client in trickling[:5]:
        client.close()
    for client in trickling[5:]:
        client.send("x: 1\n")
        assert client.answer().status == 422
    await_that(lambda: app.state.in_flight.count == 0, "they are not any more")
    assert not app.state.in_flight.excluded


def test_reviews_whose_ends_come_at_one_moment_are_load(
    app: Application, server: InProcess, source: ManifestsSource
) -> None:
    seen = source.view
    reached, go_on = threading.Event(), threading.Event()

    class Held:
        """The view, which holds up the server's only thread while others send."""

        def __getattr__(self, name: str) -> object:
            reached.set()
            assert go_on.wait(30)
            return getattr(seen, name)

    source.view = Held()  # type: ignore[assignment]
    app.state.in_flight.limit = 3
    whole = mutate(REVIEW)
    clients = [server.connect() for _ in range(8)]
    for client in clients:
        client.send(whole[:-100])
    await_that(lambda: len(app.state.in_flight.excluded) == 8, "they are under way")
    assert app.state.in_flight.review_count == 0
    clients[0].send(whole[-100:])
    assert reached.wait(30)
    for client in clients[1:]:
        client.send(whole[-100:])
    go_on.set()
    answers = [review_in(client.answer()) for client in clients]
    assert "patch" in answers[0]
    overloaded = [found for found in answers if "patch" not in found]
    assert overloaded
    assert all("reviews are under way" in found["warnings"][0] for found in overloaded)
