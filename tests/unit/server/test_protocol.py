"""The fast path of the protocol, and the requests that it leaves to the application."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import yaml
from starlette.types import Receive, Scope, Send

from tests.support.factories import SETTINGS, container, pod, policy_document
from tests.support.http_client import Client, InProcess, in_process, mutate, review_in
from tests.support.image_factories import images
from tests.support.reviews import PODS, load_pod, review
from tests.support.server_fixtures import STEADY, make_app
from tests.support.waiting import await_that
from webhook.cluster.manifest_source import ManifestsSource
from webhook.core.admission.handler import Answer
from webhook.core.cluster.view import Namespace
from webhook.server import run
from webhook.server.app import Application
from webhook.server.drain import Drain
from webhook.server.protocol import AdmissionProtocol, LoopTick
from webhook.server.request_head import HEAD_END, MAX_CACHED_HEAD_BYTES, answer_seconds

POD = load_pod(next(path for path in PODS if path.stem == "woodpecker-step"))
SETTLED = load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar"))
REVIEW = review(SETTLED)
WHOLE = mutate(REVIEW)
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


class SlowPath:
    """The ASGI application behind /mutate, and the number of its requests."""

    def __init__(self, app: Application) -> None:
        self.requests = 0
        self._mutate = app.mutate
        app.mutate = self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.requests += 1
        await self._mutate(scope, receive, send)


@dataclass
class Served:
    """A server with its source and connections."""

    app: Application
    source: Any
    server: InProcess
    slow_path: SlowPath
    connections: list[AdmissionProtocol]

    def connect(self) -> Client:
        return self.server.connect()

    @property
    def reviews(self) -> int:
        """Number of reviews, on both paths."""
        return self.server.drain.reviews

    def send_in_two(self, client: Client, request: bytes) -> None:
        """Send the second part of a request after the server has read the first."""
        before = self.reviews
        client.send(request[:-100])
        await_that(lambda: self.reviews == before + 1, "the first part was read")
        client.send(request[-100:])

    def metrics(self) -> dict[str, float]:
        lines = self.connect().get("/metrics").body.decode().splitlines()  # type: ignore[attr-defined]
        pairs = [line.rpartition(" ") for line in lines if line.startswith("podsettle_")]
        return {name: float(value) for name, _, value in pairs}


Start = Callable[..., Served]


@pytest.fixture
def start(source: ManifestsSource, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start servers, each with other limits or another source."""
    with ExitStack() as stack:

        def start(served: Any = source, **limits: Any) -> Served:
            connections: list[AdmissionProtocol] = []

            class Recorded(AdmissionProtocol):
                def __init__(self, **arguments: Any) -> None:
                    super().__init__(**arguments)
                    connections.append(self)

            monkeypatch.setattr(run, "AdmissionProtocol", Recorded)
            drain = Drain(idle_seconds=3600, timeout_seconds=3600)
            app = make_app(served, drain, limits=replace(STEADY, **limits))
            slow_path = SlowPath(app)
            server = stack.enter_context(in_process(app, drain))
            return Served(app, served, server, slow_path, connections)

        yield start


@pytest.fixture
def served(start: Start) -> Served:
    return start()


def is_settled(client: Client) -> bool:
    client.send(WHOLE)
    return "patch" in review_in(client.answer())


def of(uid: int) -> bytes:
    """A review of a small pod, recognizable by its uid."""
    return mutate(review(POD, uid=str(uid)))


# Equal answers on both paths


@pytest.mark.parametrize("path", PODS, ids=lambda path: path.stem)
def test_both_paths_give_the_same_answer(served: Served, path: Path) -> None:
    request = mutate(review(load_pod(path)))
    client = served.connect()
    client.send(request)
    whole = client.answer()
    # A request longer than a TLS record may be read in parts.
    assert served.slow_path.requests == 0 or len(request) > 16_000
    before = served.slow_path.requests
    served.send_in_two(client, request)
    parted = client.answer()
    assert served.slow_path.requests == before + 1
    assert review_in(whole)
    assert whole.body == parted.body  # type: ignore[attr-defined]
    assert (whole.status, whole.reason, whole.version) == (parted.status, "OK", parted.version)
    names = [[name for name, _ in answer.getheaders()] for answer in (whole, parted)]
    assert names[0] == names[1] == ["date", "content-type", "content-length"]
    assert whole.getheader("content-type") == parted.getheader("content-type")


def test_both_paths_count_and_log_the_same(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = served.connect()
    requests = [WHOLE, mutate(review({}, namespace="ci", object=1)), mutate(b"{}" + b" " * 100)]

    def logged() -> list[str]:
        lines = "\n".join(r.getMessage() for r in caplog.records if r.name == "webhook.server.app")
        return lines.splitlines()

    def grown(send: Callable[[bytes], None]) -> dict[str, float]:
        before, lines, reviews = served.metrics(), len(logged()), served.reviews
        for request in requests:
            send(request)
            client.answer()
        await_that(lambda: len(logged()) > lines, "the review log is flushed")
        assert len(logged()) == lines + 1
        assert served.reviews == reviews + len(requests)
        after = served.metrics()
        return {
            name: after[name] - before.get(name, 0)
            for name in after
            if after[name] != before.get(name, 0) and "duration_seconds_" not in name
        } | {"timed": after[timed] - before[timed]}

    timed = "podsettle_review_duration_seconds_count"
    on_fast_path = grown(client.send)
    assert served.slow_path.requests == 1  # for the body without a review
    on_slow_path = grown(lambda request: served.send_in_two(client, request))
    assert served.slow_path.requests == 1 + len(requests)
    assert on_fast_path == on_slow_path
    assert on_fast_path["timed"] == 2
    assert on_fast_path['podsettle_reviews_total{result="patched"}'] == 1
    assert on_fast_path['podsettle_reviews_total{result="unchanged"}'] == 1
    assert on_fast_path['podsettle_requests_refused_total{status="400"}'] == 1


# Answered on the fast path


@pytest.mark.parametrize(
    "target", ["/mutate", "/mutate/", "/mutate?timeout=10s", "https://x/mutate?timeout=1s"]
)
def test_fast_path_answers_whole_review(served: Served, target: str) -> None:
    client = served.connect()
    for _ in range(3):
        client.send(WHOLE.replace(b"/mutate", target.encode(), 1))
        assert "patch" in review_in(client.answer())
    assert served.slow_path.requests == 0
    assert served.reviews == 3
    assert served.connections[0].server_state.total_requests == 3


def test_fast_path_answers_review_with_an_internal_error(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.source.view = replace(served.source.view, runtime_classes=None)
    client = served.connect()
    client.send(mutate(review(POD)))
    assert "InternalError" in review_in(client.answer())["warnings"][0]
    assert served.slow_path.requests == 0
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    assert served.metrics()['podsettle_outcomes_total{reason="InternalError",remedy=""}'] == 1


def test_fast_path_answers_review_whose_body_follows_its_headers(start: Start) -> None:
    served = start(body_wait_seconds=60)
    client = served.connect()
    for _ in range(2):
        client.send(WHOLE[:300])
        await_that(lambda: served.connections[-1]._body_timer is not None, "the head was read")
        client.send(WHOLE[300:])
        assert "patch" in review_in(client.answer())
        assert served.connections[-1]._body_timer is None
    assert served.slow_path.requests == 0


def test_empty_lines_between_reviews_are_ignored(served: Served) -> None:
    client = served.connect()
    client.send(b"\r\n" + of(0))
    assert uid_in(client.answer()) == "0"
    client.send(b"\r\n")
    client.send(of(1))
    assert uid_in(client.answer()) == "1"
    assert client.get("/livez").status == 200
    client.send(of(2))
    assert uid_in(client.answer()) == "2"
    assert served.slow_path.requests == 0


def test_deadline_comes_from_the_query(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    handle_sync = served.app.admission_server.handle_sync
    given: list[float] = []

    def note(body: bytes, deadline: float, came: float) -> bytes | None:
        given.append(deadline)
        return handle_sync(body, deadline, came)

    monkeypatch.setattr(served.app.admission_server, "handle_sync", note)
    client = served.connect()
    for query in ("?timeout=1s", "", f"?{'a' * 300}&timeout=1s"):
        client.send(mutate(REVIEW, query))
        assert "patch" in review_in(client.answer())
    assert given == pytest.approx([0.7, 7, 7])
    assert answer_seconds(b"a" * 300 + b"&timeout=1s") == 7


@pytest.mark.parametrize("too_long", [False, True])
def test_fast_path_parses_heads_up_to_a_maximum_length(served: Served, too_long: bool) -> None:
    head, body = WHOLE.split(HEAD_END)
    filled = MAX_CACHED_HEAD_BYTES - len(head + HEAD_END) - len(b"\r\nX: ") + too_long
    client = served.connect()
    client.send(head + b"\r\nX: " + b"x" * filled + HEAD_END + body)
    assert "patch" in review_in(client.answer())
    assert served.slow_path.requests == too_long


def test_review_that_begins_stops_the_keep_alive_timer(start: Start) -> None:
    served = start(body_wait_seconds=60)
    client = served.connect()
    assert client.get("/livez").status == 200
    (connection,) = served.connections
    assert connection.timeout_keep_alive_task is not None
    client.send(WHOLE[:300])
    await_that(lambda: connection._body_timer is not None, "the head was read")
    assert connection.timeout_keep_alive_task is None
    client.send(WHOLE[300:])
    assert "patch" in review_in(client.answer())


# Incomplete requests


def test_slow_path_gets_long_incomplete_body_at_once(start: Start) -> None:
    served = start(body_wait_seconds=60)
    long = mutate(review(pod(container("a", "x" * 40_000))))
    client = served.connect()
    served.send_in_two(client, long)
    assert "auditAnnotations" in review_in(client.answer())
    assert served.slow_path.requests == 1


def test_body_timer_is_cancelled_when_a_request_is_delegated(start: Start) -> None:
    served = start(body_wait_seconds=60)
    client = served.connect()
    long = mutate(review(pod(container("a", "x" * 40_000))))
    client.send(long[:300])
    await_that(lambda: bool(served.connections), "the connection exists")
    connection = served.connections[-1]
    await_that(lambda: connection._body_timer is not None, "the head was read")
    client.send(long[300:-100])
    await_that(lambda: served.slow_path.requests == 1, "the application has it")
    assert connection._body_timer is None
    client.send(long[-100:])
    review_in(client.answer())


def test_body_timer_is_not_restarted_by_further_pieces(start: Start) -> None:
    served = start(body_wait_seconds=60)
    client = served.connect()
    waiting: list[object] = []
    for end in (300, 301, 302):
        client.send(WHOLE[end - 1 if waiting else 0 : end])
        await_that(lambda: bool(served.connections), "the connection exists")
        connection = served.connections[-1]
        await_that(lambda: len(connection._buffer) == end, "the piece was read")  # noqa: B023
        waiting.append(connection._body_timer)
    assert waiting[0] is waiting[1] is waiting[2]
    client.send(WHOLE[302:])
    assert "patch" in review_in(client.answer())


def test_incomplete_review_is_answered_during_shutdown(start: Start) -> None:
    served = start(body_wait_seconds=60)
    client = served.connect()
    client.send(WHOLE[:-100])
    await_that(lambda: bool(served.connections), "the connection exists")
    await_that(lambda: served.connections[-1]._body_timer is not None, "the first part was read")
    served.connections[-1].loop.call_soon_threadsafe(served.connections[-1].shutdown)
    await_that(lambda: served.slow_path.requests == 1, "the application has it")
    client.send(WHOLE[-100:])
    assert "patch" in review_in(client.answer())


def test_waiting_for_the_client_does_not_count_as_queueing(start: Start) -> None:
    # More than a quarter of the deadline has passed when the wait ends.
    served = start(body_wait_seconds=2)
    client = served.connect()
    request = mutate(REVIEW, "?timeout=8s")
    served.send_in_two(client, request)
    assert "patch" in review_in(client.answer())


@pytest.mark.parametrize("length", [10, 40_000])
def test_queueing_counts_as_overload_on_both_paths(
    served: Served, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(LoopTick, "started_at", lambda *_: time.monotonic() - 2)
    client = served.connect()
    request = mutate(review(pod(container("a", "x" * length))), "?timeout=10s")
    served.send_in_two(client, request)
    assert "Overloaded" in review_in(client.answer())["warnings"][0]


def test_body_timer_is_cancelled_when_the_client_disconnects(start: Start) -> None:
    served = start(body_wait_seconds=60)
    client = served.connect()
    client.send(WHOLE[:-100])
    await_that(lambda: bool(served.connections), "the connection exists")
    connection = served.connections[-1]
    await_that(lambda: connection._body_timer is not None, "the first part was read")
    client.close()
    await_that(lambda: connection._body_timer is None, "the connection is gone")
    assert served.slow_path.requests == 0


# Left to the application


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


def test_chunked_body_takes_the_slow_path(served: Served) -> None:
    client = served.connect()
    body = json.dumps(REVIEW).encode()
    head = (
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    chunks = (body[:1000], body[1000:1001], body[1001:])
    client.send(head + b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n")
    assert "patch" in review_in(client.answer())
    assert served.slow_path.requests == 1
    assert is_settled(client)
    assert served.slow_path.requests == 1


def test_headers_in_pieces_take_the_slow_path(served: Served) -> None:
    client = served.connect()
    client.send(WHOLE[:20])
    await_that(lambda: served.connections[-1]._in_head, "the head has begun")
    client.send(WHOLE[20:])
    assert "patch" in review_in(client.answer())
    assert served.slow_path.requests == 1
    assert is_settled(client)
    assert served.slow_path.requests == 1


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


class NewNamespaces:
    """A source that has to look up every namespace."""

    def __init__(self, source: ManifestsSource) -> None:
        self._source = source
        self.view = replace(source.view, namespaces={}, invents_namespaces=False)
        self.fetched: list[str] = []

    async def fetch_namespace(self, name: str, _timeout: float) -> Namespace | None:
        self.fetched.append(name)
        self.view = self._source.view
        return self._source.view.namespace(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def test_slow_path_looks_up_unknown_namespace(start: Start, source: ManifestsSource) -> None:
    young = NewNamespaces(source)
    served = start(young)
    client = served.connect()
    client.send(WHOLE)
    assert "patch" in review_in(client.answer())
    assert young.fetched == [SETTLED["metadata"]["namespace"]]
    assert (served.slow_path.requests, served.reviews) == (1, 1)
    assert served.metrics()['podsettle_reviews_total{result="patched"}'] == 1
    assert served.metrics()['podsettle_reviews_total{result="unchanged"}'] == 0
    assert is_settled(client)
    assert served.slow_path.requests == 1


def test_slow_path_gets_reviews_that_need_image_look_ups(tmp_path: Path) -> None:
    document = policy_document(**images("registry.example"))
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(document))
    source = ManifestsSource(tmp_path)
    source.refresh()
    drain = Drain(10, 45)
    app = make_app(source, drain, settings=SETTINGS)

    def handle_sync(**spec: Any) -> bytes | None:
        body = json.dumps(review(pod(restartPolicy="Never", **spec))).encode()
        return app.admission_server.handle_sync(body, 7.0, monotonic())

    assert handle_sync(containers=[container("main", "/x")]) is not None
    assert drain.reviews == 1
    assert handle_sync(containers=[container("main", image="registry.example/a:1")]) is None
    assert drain.reviews == 1


def test_slow_path_answers_if_the_fast_path_raises(
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


# Data that looks like a review


def test_rest_of_a_body_after_an_early_answer_is_not_a_request(served: Served) -> None:
    client = served.connect()
    client.send(f"POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: {len(WHOLE)}\r\n\r\n")
    assert client.answer().status == 404
    client.send(WHOLE)
    client.send(of(1))
    assert uid_in(client.answer()) == "1"
    client.send(of(2))
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


# Pipelining


def uid_in(answer: Any) -> str:
    return str(review_in(answer)["uid"])


def test_pipelined_reviews_take_the_slow_path_in_order(served: Served) -> None:
    client = served.connect()
    client.send(b"".join(map(of, range(4))))
    assert [uid_in(client.answer()) for _ in range(4)] == ["0", "1", "2", "3"]
    # None on the fast path, so that other clients are read in between.
    assert served.slow_path.requests == 4
    client.send(of(4))
    assert uid_in(client.answer()) == "4"
    assert served.slow_path.requests == 4


def test_pipelined_requests_of_several_routes_are_answered_in_order(
    start: Start, source: ManifestsSource
) -> None:
    served = start(NewNamespaces(source))
    client = served.connect()
    # The first waits for its namespace, and the last must not overtake it.
    client.send(of(0) + LIVEZ + of(1) + b"GET /mutate HTTP/1.1\r\nHost: x\r\n\r\n" + of(2))
    assert uid_in(client.answer()) == "0"
    assert client.answer().body == b"ok"  # type: ignore[attr-defined]
    assert uid_in(client.answer()) == "1"
    assert client.answer().status == 405
    assert client.is_closed()
    other = served.connect()
    other.send(LIVEZ + of(3) + of(4))
    assert other.answer().status == 200
    assert [uid_in(other.answer()) for _ in range(2)] == ["3", "4"]
    assert is_settled(other)


def test_segment_with_the_end_and_the_beginning_of_reviews_is_read(served: Served) -> None:
    client = served.connect()
    both = WHOLE + of(1)
    for cut in (len(WHOLE) + 10, len(both) - 100):
        client.send(both[:cut])
        assert "patch" in review_in(client.answer())
        client.send(both[cut:])
        assert uid_in(client.answer()) == "1"
    before = served.reviews
    client.send(WHOLE[:-100])
    await_that(lambda: served.reviews == before + 1, "it has begun")
    client.send(WHOLE[-100:] + of(2) + of(3)[:-100])
    assert "patch" in review_in(client.answer())
    assert uid_in(client.answer()) == "2"
    client.send(of(3)[-100:])
    assert uid_in(client.answer()) == "3"
    assert is_settled(client)


def test_requests_behind_an_answer_that_closes_are_not_begun(start: Start) -> None:
    served = start(goaway_chance=1)
    client = served.connect()
    client.send(of(0) + of(1) + LIVEZ)
    answer = client.answer()
    assert uid_in(answer) == "0"
    assert answer.getheader("connection") == "close"
    assert client.is_closed()
    assert served.reviews == 1


# Idle connections


def test_idle_check_leaves_used_connection_open(served: Served) -> None:
    client = served.connect()
    assert is_settled(client)
    (connection,) = served.connections
    before = connection._idle_timer
    connection.loop.call_soon_threadsafe(connection._close_if_idle)
    await_that(lambda: connection._idle_timer is not before, "the idle check has run")
    assert not connection.transport.is_closing()
    assert is_settled(client)


def test_idle_timeout_applies_after_fast_path_reviews(start: Start) -> None:
    served = start(idle_timeout_seconds=3)
    idle, noisy, slow = (served.connect() for _ in range(3))
    for client in (idle, noisy):
        client.send(WHOLE)
        review_in(client.answer())
    assert served.slow_path.requests == 0
    noisy.send("\r\n")
    # A request that began in the same segment as the end of another keeps its connection.
    slow.send(WHOLE + of(1)[:-100])
    review_in(slow.answer())
    assert idle.is_closed()
    assert noisy.is_closed()
    slow.send(of(1)[-100:])
    assert uid_in(slow.answer()) == "1"


# Clients that do not read


def test_reading_stays_paused_while_pipelined_requests_wait(served: Served) -> None:
    client = served.connect()
    assert is_settled(client)
    (connection,) = served.connections
    refused = threading.Event()

    def resume() -> None:
        connection.pipeline.append((connection.cycle, connection.app))
        connection.flow.pause_reading()
        connection.flow.resume_reading()
        assert connection.flow.read_paused
        connection.pipeline.clear()
        connection.flow.resume_reading()
        assert not connection.flow.read_paused
        refused.set()

    connection.loop.call_soon_threadsafe(resume)
    assert refused.wait(30)


def test_fast_path_is_not_used_while_the_client_does_not_read(served: Served) -> None:
    client = served.connect()
    assert is_settled(client)
    (connection,) = served.connections
    connection.loop.call_soon_threadsafe(connection.pause_writing)
    await_that(lambda: connection.flow.write_paused, "writing is paused")
    assert connection._write_timer is not None
    client.send(of(1))
    await_that(lambda: served.app.state.in_flight.count, "the application has it")
    client.send(of(2))
    await_that(lambda: connection.flow.read_paused, "reading is paused")
    connection.loop.call_soon_threadsafe(connection.resume_writing)
    await_that(lambda: connection._write_timer is None, "the write timeout is cancelled")
    assert [uid_in(client.answer()) for _ in range(2)] == ["1", "2"]
    assert is_settled(client)


# Queueing


async def test_loop_tick_lasts_until_all_clients_were_read() -> None:
    loop, present = asyncio.get_running_loop(), LoopTick(clock=count(1).__next__)
    assert [present.started_at(loop), present.started_at(loop)] == [1, 1]
    await asyncio.sleep(0)
    assert [present.started_at(loop), present.started_at(loop)] == [2, 2]


def test_reviews_read_in_one_iteration_have_the_same_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    handle_sync = served.app.admission_server.handle_sync
    moments: list[float] = []

    def noting(body: bytes, deadline: float, came: float) -> bytes | None:
        moments.append(came)
        reached.set()
        assert go_on.wait(30)
        return handle_sync(body, deadline, came)

    monkeypatch.setattr(served.app.admission_server, "handle_sync", noting)
    clients = [served.connect() for _ in range(5)]
    clients[0].send(of(0))
    assert reached.wait(30)
    for client in clients[1:]:
        client.send(of(1))
    go_on.set()
    for client in clients:
        review_in(client.answer())
    clients[0].send(of(2))
    review_in(clients[0].answer())
    first, *together, last = moments
    assert len(together) == 4
    assert first < together[0] < last
    # Each of them has waited for those that were read before it.
    assert set(together) == {together[0]}
