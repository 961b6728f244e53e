"""The lame duck: from the signal to leave until nobody sends reviews any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.support.http_client import Client, InProcess, in_process, mutate, review_in
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that
from webhook.cluster.manifest_source import ManifestsSource
from webhook.cluster.snapshot import Snapshot
from webhook.core.admission.decide import OperatorSettings
from webhook.core.policy.coverage import PolicySet
from webhook.server.app import create_app
from webhook.server.drain import Drain

REVIEW = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


# When it is over


def test_it_is_not_over_before_it_has_begun(clock: Clock) -> None:
    drain = Drain(idle_seconds=0, timeout_seconds=0, clock=clock)
    clock.now += 1000
    assert not drain.finished()
    assert drain.check().ready


def test_it_is_over_when_it_was_quiet_for_long_enough(clock: Clock) -> None:
    drain = Drain(idle_seconds=10, timeout_seconds=45, clock=clock)
    drain.reviews = 7
    drain.start()
    clock.now += 9.9
    assert not drain.finished()
    clock.now += 0.2
    assert drain.finished()


def test_each_review_begins_the_quiet_anew(clock: Clock) -> None:
    drain = Drain(idle_seconds=10, timeout_seconds=45, clock=clock)
    drain.start()
    for _ in range(4):
        clock.now += 9
        drain.reviews += 1
        assert not drain.finished()
    clock.now += 8.9
    assert not drain.finished()


def test_it_is_over_at_the_limit_however_much_comes(clock: Clock) -> None:
    drain = Drain(idle_seconds=10, timeout_seconds=45, clock=clock)
    drain.start()
    clock.now += 44.9
    drain.reviews += 1
    assert not drain.finished()
    clock.now += 0.2
    drain.reviews += 1
    assert drain.finished()


def test_to_begin_twice_does_not_prolong_it(clock: Clock) -> None:
    drain = Drain(idle_seconds=10, timeout_seconds=45, clock=clock)
    drain.start()
    clock.now += 9
    drain.start()
    clock.now += 1
    assert drain.finished()


# What clients see of it


class Gate:
    """A snapshot's policies that hold up the server's only thread while it is closed."""

    def __init__(self, view: Snapshot) -> None:
        self.slow = False
        self.reached = threading.Event()
        self.open = threading.Event()
        self.open.set()
        gate = self

        class Held(PolicySet):
            def coverage_for(self, *arguments: object, **options: object) -> object:  # type: ignore[override]
                gate.reached.set()
                assert gate.open.wait(30)
                if gate.slow:
                    time.sleep(0.5)
                return view.policies.coverage_for(*arguments, **options)  # type: ignore[arg-type]

        self.view = replace(view, policies=Held())

    def close(self) -> None:
        self.reached.clear()
        self.open.clear()


@pytest.fixture
def gate(source: ManifestsSource) -> Gate:
    made = Gate(source.view)
    source.view = made.view
    return made


@pytest.fixture
def server(source: ManifestsSource, gate: Gate) -> Iterator[InProcess]:
    drain = Drain(idle_seconds=3600, timeout_seconds=3600)
    app = create_app(
        source,
        OperatorSettings(linger_image="registry.example/linger:1"),
        certificate_expires=lambda: datetime(2027, 1, 1, tzinfo=UTC),
        drain=drain,
    )
    with in_process(app, drain) as running:
        yield running
        gate.open.set()


def says_close(client: Client) -> bool:
    client.send(mutate(REVIEW))
    answer = client.answer()
    assert "patch" in review_in(answer)
    return answer.getheader("Connection") == "close"


def test_it_is_not_ready_any_more_and_answers_on(server: InProcess) -> None:
    old, prober = server.connect(), server.connect()
    assert not says_close(old)
    assert prober.get("/readyz").status == 200
    server.drain.start()
    answer = prober.get("/readyz")
    assert answer.status == 503
    assert b"[-]shutdown this process is about to end\n" in answer.body  # type: ignore[attr-defined]
    await_that(lambda: says_close(server.connect()), "answers ask for the connection's end")
    # A connection from before, and a new one: each is answered, then really closed.
    for client in (old, server.connect()):
        assert says_close(client)
        assert client.hung_up()
    date = server.connect().get("/livez").getheader("Date")
    await_that(
        lambda: server.connect().get("/livez").getheader("Date") != date, "headers are renewed"
    )
    assert says_close(server.connect())
    assert b'podsettle_check_ready{check="shutdown"} 0.0' in (
        server.connect().get("/metrics").body  # type: ignore[attr-defined]
    )


def test_it_ends_once_it_is_quiet_and_hangs_up_on_the_idle(server: InProcess) -> None:
    idle, unused = server.connect(), server.connect()
    assert not says_close(idle)
    server.drain.idle_seconds = 0.1
    server.drain.start()
    assert idle.hung_up()
    assert unused.hung_up()
    server.thread.join(30)
    assert not server.thread.is_alive()


def test_a_review_whose_body_is_still_coming_is_answered(server: InProcess) -> None:
    client = server.connect()
    whole = mutate(REVIEW)
    client.send(whole[:-10])
    await_that(lambda: server.drain.reviews == 1, "the review has begun")
    server.drain.idle_seconds = 0
    server.drain.start()
    await_refusal(server)
    client.send(whole[-10:])
    assert "patch" in review_in(client.answer())
    assert client.hung_up()


def test_a_review_whose_head_is_still_coming_is_answered(server: InProcess) -> None:
    client = server.connect()
    whole = mutate(REVIEW)
    assert not says_close(client)
    client.send(whole[:10])
    # The server reads in turn: once it has answered another, it has read these bytes.
    assert server.connect().get("/livez").status == 200
    server.drain.idle_seconds = 0
    server.drain.start()
    await_refusal(server)
    client.send(whole[10:])
    assert "patch" in review_in(client.answer())
    assert client.hung_up()


def test_a_review_of_the_same_instant_is_answered(server: InProcess, gate: Gate) -> None:
    busy, idle = server.connect(), server.connect()
    assert not says_close(busy)
    assert not says_close(idle)
    gate.close()
    busy.send(mutate(REVIEW))
    assert gate.reached.wait(30)
    # While the loop is held up: it is over, and a review has arrived that nobody has read.
    idle.send(mutate(REVIEW))
    server.drain.idle_seconds = 0
    server.drain.start()
    # Longer than the server waits from one look at the drain to the next: that is due now, too.
    time.sleep(0.3)
    gate.open.set()
    assert "patch" in review_in(busy.answer())
    assert "patch" in review_in(idle.answer())


# What waits too long for its turn


def test_a_review_that_waited_too_long_is_let_pass_unread(server: InProcess, gate: Gate) -> None:
    """One thread does the work: each of these keeps the next one from its turn."""
    first, second, third = (server.connect() for _ in range(3))
    for client in (first, second, third):
        assert not says_close(client)
    gate.close()
    first.send(mutate(REVIEW, "?timeout=1s"))
    assert gate.reached.wait(30)
    for client in (second, third):
        client.send(mutate(REVIEW, "?timeout=1s"))
    # Both are read when the first is done, and one of them takes longer than the other may wait.
    gate.slow = True
    gate.open.set()
    assert "patch" in review_in(first.answer())
    answers = [review_in(client.answer()) for client in (second, third)]
    (settled,) = [answer for answer in answers if "patch" in answer]
    (passed,) = [answer for answer in answers if answer is not settled]
    assert "podsettle: Overloaded: " in passed["warnings"][0]


def await_refusal(server: InProcess) -> None:
    def refused() -> bool:
        try:
            server.connect().close()
        except OSError:
            return True
        return False

    await_that(refused, "the port is closed")
