"""Graceful shutdown: the decision when to exit, and what clients see before."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.http_client import Client, InProcess, in_process, mutate, review_in
from tests.support.reviews import PODS, load_pod, review
from tests.support.server_fixtures import STEADY, make_components
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.snapshot import Snapshot
from webhook.server.drain import Drain

REVIEW = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


# The decision when to exit


Events = list[tuple[float, str, bool]]


@pytest.mark.parametrize(
    "events",
    [
        [(1000, "", False)],
        [(0, "start", False), (9.9, "", False), (0.2, "", True)],
        [(0, "start", False), *[(9, "review", False)] * 4, (8.9, "", False), (1.2, "", True)],
        [(0, "start", False), (44.9, "review", False), (0.2, "review", True)],
        [(0, "start", False), (9, "start", False), (1, "", True)],
    ],
    ids=["no start", "idle time", "reviews", "timeout", "second start"],
)
def test_drain_finishes_after_the_idle_time_or_the_timeout(clock: Clock, events: Events) -> None:
    """Each event is what happens after some seconds, and whether the drain is finished then."""
    drain = Drain(idle_seconds=10, timeout_seconds=45, clock=clock)
    drain.last_review_at = 93
    assert drain.check().ready
    for seconds, event, finished in events:
        clock.now += seconds
        if event == "start":
            drain.start()
        if event == "review":
            drain.last_review_at = clock.now
        assert drain.finished() is finished


# What clients see


class Gate:
    """Policies that block the server's only thread while the gate is closed."""

    def __init__(self, view: Snapshot) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self.open.set()
        gate = self

        class Held(PolicySet):
            def coverage_for(self, *arguments: object, **options: object) -> object:  # type: ignore[override]
                gate.reached.set()
                assert gate.open.wait(TIMEOUT_SECONDS)
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
    limits = replace(STEADY, shutdown_idle_timeout_seconds=3600)
    with in_process(make_components(source, limits=limits)) as running:
        yield running
        gate.open.set()


def says_close(client: Client) -> bool:
    client.send(mutate(REVIEW))
    answer = client.answer()
    assert "patch" in review_in(answer)
    return answer.getheader("Connection") == "close"


def test_draining_server_is_not_ready_but_answers_reviews(server: InProcess) -> None:
    old = server.connect()
    assert not says_close(old)
    assert server.connect().get("/readyz").status == 200
    server.drain.start()
    answer = server.connect().get("/readyz")
    assert (answer.status, answer.getheader("connection")) == (503, "close")
    web = server.connect(web=True).get("/readyz")
    assert web.status == 503
    assert b"this process is shutting down" in web.body  # type: ignore[attr-defined]
    assert server.connect().get("/livez").status == 200
    # An old and a new connection are both answered and then closed.
    for client in (old, server.connect()):
        assert says_close(client)
        assert client.is_closed()
    assert b'podsettle_check_ready{check="shutdown"} 0.0' in (
        server.connect(web=True).get("/metrics").body  # type: ignore[attr-defined]
    )


def begin_exit(server: InProcess, *idle: Client) -> None:
    """Let the drain finish, and wait until idle clients are told to close their connections."""
    server.drain.idle_seconds = 0.1
    server.drain.start()
    for client in idle:
        assert client.socket.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_drained_server_exits_when_its_clients_have_closed_their_idle_connections(
    server: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    idle, unused = server.connect(), server.connect()
    assert not says_close(idle)
    begin_exit(server, idle, unused)
    await_refusal(server)
    idle.close()
    unused.close()
    server.thread.join(TIMEOUT_SECONDS)
    assert not server.thread.is_alive()
    assert "timeout graceful shutdown exceeded" not in caplog.text


def test_drained_server_closes_idle_connections_that_clients_keep_and_exits(
    source: ManifestsSource,
) -> None:
    limits = replace(STEADY, shutdown_idle_timeout_seconds=0.1)
    with in_process(make_components(source, limits=limits)) as server:
        idle, unused = server.connect(), server.connect()
        assert not says_close(idle)
        begin_exit(server, idle, unused)
        assert idle.is_closed()
        assert unused.is_closed()
        server.thread.join(TIMEOUT_SECONDS)
        assert not server.thread.is_alive()


def test_reviews_on_open_connections_are_answered_after_the_drain(server: InProcess) -> None:
    body, head, idle, unused = (server.connect() for _ in range(4))
    whole = mutate(REVIEW)
    for client in (head, idle):
        assert not says_close(client)
    body.send(whole[:-10])
    await_that(server.components.review_server.requests, "the review has begun")
    head.send(whole[:10])
    # The server reads in order: after it has answered another request, it has read these bytes.
    assert server.connect().get("/livez").status == 200
    begin_exit(server, idle, unused)
    await_refusal(server)
    for client, rest in ((body, whole[-10:]), (head, whole[10:]), (idle, whole), (unused, whole)):
        client.send(rest)
        answer = client.answer()
        assert "patch" in review_in(answer)
        assert answer.getheader("Connection") == "close"
        assert client.is_closed()


def test_review_that_arrives_at_the_moment_of_exit_is_answered(
    server: InProcess, gate: Gate
) -> None:
    busy, idle = server.connect(), server.connect()
    assert not says_close(busy)
    assert not says_close(idle)
    gate.close()
    busy.send(mutate(REVIEW))
    assert gate.reached.wait(TIMEOUT_SECONDS)
    # While the loop is blocked, the drain finishes and a review arrives that is not yet read.
    idle.send(mutate(REVIEW))
    server.drain.idle_seconds = 0
    server.drain.start()
    # Longer than the interval at which the server polls the drain, so that a poll is due as well.
    time.sleep(0.3)
    gate.open.set()
    assert "patch" in review_in(busy.answer())
    assert "patch" in review_in(idle.answer())


def await_refusal(server: InProcess) -> None:
    def refused() -> bool:
        try:
            server.connect().close()
        except OSError:
            return True
        return False

    await_that(refused, "the port is closed")
