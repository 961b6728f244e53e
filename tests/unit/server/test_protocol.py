"""Reviews that are answered where they are read, and those that take the application."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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
from tests.support.waiting import await_that
from webhook.cluster.manifest_source import ManifestsSource
from webhook.core.admission.decide import OperatorSettings
from webhook.core.admission.handler import Answer
from webhook.core.cluster.view import Namespace
from webhook.server import protocol
from webhook.server import run as serve
from webhook.server.app import Application, create_app
from webhook.server.drain import Drain
from webhook.server.protocol import AdmissionProtocol
from webhook.server.request_head import END, LONGEST, answer_seconds

POD = load_pod(next(path for path in PODS if path.stem == "woodpecker-step"))
SETTLED = load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar"))
REVIEW = review(SETTLED)
WHOLE = mutate(REVIEW)
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


class Ways:
    """The application behind /mutate, and how often it was asked."""

    def __init__(self, app: Application) -> None:
        self.long = 0
        self.mutate = app.mutate
        app.mutate = self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.long += 1
        await self.mutate(scope, receive, send)


@dataclass
class Served:
    """A server, what it serves, and its connections."""

    app: Application
    source: ManifestsSource
    server: InProcess
    ways: Ways
    connections: list[AdmissionProtocol]

    def connect(self) -> Client:
        return self.server.connect()

    @property
    def reviews(self) -> int:
        """Those that were taken, whichever way."""
        return self.server.drain.reviews

    def send_in_two(self, client: Client, request: bytes) -> None:
        """The second part once the first was read."""
        before = self.reviews
        client.send(request[:-100])
        await_that(lambda: self.reviews == before + 1, "the first part was read")
        client.send(request[-100:])

    def metrics(self) -> dict[str, float]:
        lines = self.connect().get("/metrics").body.decode().splitlines()  # type: ignore[attr-defined]
        pairs = [line.rpartition(" ") for line in lines if line.startswith("podsettle_")]
        return {name: float(value) for name, _, value in pairs}


@pytest.fixture
def served(source: ManifestsSource, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    connections: list[AdmissionProtocol] = []

    class Noted(AdmissionProtocol):
        def __init__(self, **arguments: Any) -> None:
            super().__init__(**arguments)
            connections.append(self)

    monkeypatch.setattr(serve, "AdmissionProtocol", Noted)
    drain = Drain(idle_seconds=3600, timeout_seconds=3600)
    app = create_app(
        source,
        OperatorSettings(linger_image="registry.example/linger:1"),
        certificate_expires=lambda: datetime(2027, 1, 1, tzinfo=UTC),
        drain=drain,
    )
    ways = Ways(app)
    with in_process(app, drain) as server:
        yield Served(app, source, server, ways, connections)


def is_settled(client: Client) -> bool:
    client.send(WHOLE)
    return "patch" in review_in(client.answer())


def of(uid: int) -> bytes:
    """A review of a small pod, to be told from others."""
    return mutate(review(POD, uid=str(uid)))


# One answer, whichever way


@pytest.mark.parametrize("path", PODS, ids=lambda path: path.stem)
def test_the_answer_is_the_same_whichever_way_it_takes(served: Served, path: Path) -> None:
    request = mutate(review(load_pod(path)))
    client = served.connect()
    client.send(request)
    whole = client.answer()
    # What does not fit a record of TLS may be read in parts.
    assert served.ways.long == 0 or len(request) > 16_000
    before = served.ways.long
    served.send_in_two(client, request)
    parted = client.answer()
    assert served.ways.long == before + 1
    assert review_in(whole)
    assert whole.body == parted.body  # type: ignore[attr-defined]
    assert (whole.status, whole.reason, whole.version) == (parted.status, "OK", parted.version)
    names = [[name for name, _ in answer.getheaders()] for answer in (whole, parted)]
    assert names[0] == names[1] == ["date", "content-type", "content-length"]
    assert whole.getheader("content-type") == parted.getheader("content-type")


def test_it_is_counted_and_told_the_same(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client = served.connect()
    requests = [WHOLE, mutate(review({}, namespace="ci", object=1)), mutate(b"{}" + b" " * 100)]

    def told() -> list[str]:
        lines = "\n".join(r.getMessage() for r in caplog.records if r.name == "webhook.server.app")
        return lines.splitlines()

    def grown(send: Callable[[bytes], None]) -> dict[str, float]:
        before, lines, reviews = served.metrics(), len(told()), served.reviews
        for request in requests:
            send(request)
            client.answer()
        await_that(lambda: len(told()) > lines, "the journal is written")
        assert len(told()) == lines + 1
        assert served.reviews == reviews + len(requests)
        after = served.metrics()
        return {
            name: after[name] - before.get(name, 0)
            for name in after
            if after[name] != before.get(name, 0) and "duration_seconds_" not in name
        } | {"timed": after[timed] - before[timed]}

    timed = "podsettle_review_duration_seconds_count"
    handle_sync = grown(client.send)
    assert served.ways.long == 1  # for what is no review
    later = grown(lambda request: served.send_in_two(client, request))
    assert served.ways.long == 1 + len(requests)
    assert handle_sync == later
    assert handle_sync["timed"] == 2
    assert handle_sync['podsettle_reviews_total{result="patched"}'] == 1
    assert handle_sync['podsettle_reviews_total{result="unchanged"}'] == 1
    assert handle_sync['podsettle_requests_refused_total{status="400"}'] == 1


# What is answered at once


@pytest.mark.parametrize(
    "target", ["/mutate", "/mutate/", "/mutate?timeout=10s", "https://x/mutate?timeout=1s"]
)
def test_a_review_that_comes_whole_is_answered_at_once(served: Served, target: str) -> None:
    client = served.connect()
    for _ in range(3):
        client.send(WHOLE.replace(b"/mutate", target.encode(), 1))
        assert "patch" in review_in(client.answer())
    assert served.ways.long == 0
    assert served.reviews == 3
    assert served.connections[0].server_state.total_requests == 3


def test_so_is_one_that_cannot_be_decided_on(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.source.view = replace(served.source.view, runtime_classes=None)  # type: ignore[arg-type]
    client = served.connect()
    client.send(mutate(review(POD)))
    assert "InternalError" in review_in(client.answer())["warnings"][0]
    assert served.ways.long == 0
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    assert served.metrics()['podsettle_outcomes_total{reason="InternalError",remedy=""}'] == 1


def test_so_is_one_whose_body_comes_a_moment_after_its_head(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "BODY_WAIT_SECONDS", 60.0)
    client = served.connect()
    for _ in range(2):
        client.send(WHOLE[:300])
        await_that(lambda: served.connections[-1]._body_timer is not None, "the head was read")
        client.send(WHOLE[300:])
        assert "patch" in review_in(client.answer())
        assert served.connections[-1]._body_timer is None
    assert served.ways.long == 0


def test_empty_lines_between_reviews_are_passed_over(served: Served) -> None:
    client = served.connect()
    client.send(b"\r\n" + of(0))
    assert uid_in(client.answer()) == "0"
    client.send(b"\r\n")
    client.send(of(1))
    assert uid_in(client.answer()) == "1"
    assert client.get("/livez").status == 200
    client.send(of(2))
    assert uid_in(client.answer()) == "2"
    assert served.ways.long == 0


def test_it_has_the_time_that_its_head_says(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_heads_of_some_length_are_remembered(served: Served, too_long: bool) -> None:
    head, body = WHOLE.split(END)
    filled = LONGEST - len(head + END) - len(b"\r\nX: ") + too_long
    client = served.connect()
    client.send(head + b"\r\nX: " + b"x" * filled + END + body)
    assert "patch" in review_in(client.answer())
    assert served.ways.long == too_long


def test_a_connection_that_was_idle_does_not_end_amid_a_review(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "BODY_WAIT_SECONDS", 60.0)
    client = served.connect()
    assert client.get("/livez").status == 200
    (connection,) = served.connections
    assert connection.timeout_keep_alive_task is not None
    client.send(WHOLE[:300])
    await_that(lambda: connection._body_timer is not None, "the head was read")
    assert connection.timeout_keep_alive_task is None
    client.send(WHOLE[300:])
    assert "patch" in review_in(client.answer())


# What comes late


def test_a_long_body_is_not_waited_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "BODY_WAIT_SECONDS", 60.0)
    long = mutate(review(pod(container("a", "x" * 40_000))))
    client = served.connect()
    served.send_in_two(client, long)
    assert "auditAnnotations" in review_in(client.answer())
    assert served.ways.long == 1


def test_what_it_was_waited_for_with_is_forgotten(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "BODY_WAIT_SECONDS", 60.0)
    client = served.connect()
    long = mutate(review(pod(container("a", "x" * 40_000))))
    client.send(long[:300])
    await_that(lambda: bool(served.connections), "the connection is there")
    connection = served.connections[-1]
    await_that(lambda: connection._body_timer is not None, "the head was read")
    client.send(long[300:-100])
    await_that(lambda: served.ways.long == 1, "it was left to the application")
    assert connection._body_timer is None
    client.send(long[-100:])
    review_in(client.answer())


def test_each_piece_is_not_waited_for_anew(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "BODY_WAIT_SECONDS", 60.0)
    client = served.connect()
    waiting: list[object] = []
    for end in (300, 301, 302):
        client.send(WHOLE[end - 1 if waiting else 0 : end])
        await_that(lambda: bool(served.connections), "the connection is there")
        connection = served.connections[-1]
        await_that(lambda: len(connection._buffer) == end, "the piece was read")  # noqa: B023
        waiting.append(connection._body_timer)
    assert waiting[0] is waiting[1] is waiting[2]
    client.send(WHOLE[302:])
    assert "patch" in review_in(client.answer())


def test_a_body_that_is_waited_for_is_answered_before_the_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "BODY_WAIT_SECONDS", 60.0)
    client = served.connect()
    client.send(WHOLE[:-100])
    await_that(lambda: bool(served.connections), "the connection is there")
    await_that(lambda: served.connections[-1]._body_timer is not None, "the first part was read")
    served.connections[-1].loop.call_soon_threadsafe(served.connections[-1].shutdown)
    await_that(lambda: served.ways.long == 1, "it was left to the application")
    client.send(WHOLE[-100:])
    assert "patch" in review_in(client.answer())


def test_to_wait_for_a_client_is_no_sign_of_load(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A quarter of the deadline that this leaves has gone by when the patience ends.
    monkeypatch.setattr(protocol, "BODY_WAIT_SECONDS", 2.0)
    client = served.connect()
    request = mutate(REVIEW, "?timeout=8s")
    served.send_in_two(client, request)
    assert "patch" in review_in(client.answer())


@pytest.mark.parametrize("length", [10, 40_000])
def test_to_wait_for_its_turn_is_one_whatever_way_a_review_takes(
    served: Served, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(protocol.LoopTick, "started_at", lambda *_: time.monotonic() - 2)
    client = served.connect()
    request = mutate(review(pod(container("a", "x" * length))), "?timeout=10s")
    served.send_in_two(client, request)
    assert "Overloaded" in review_in(client.answer())["warnings"][0]


def test_a_client_that_leaves_is_not_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "BODY_WAIT_SECONDS", 60.0)
    client = served.connect()
    client.send(WHOLE[:-100])
    await_that(lambda: bool(served.connections), "the connection is there")
    connection = served.connections[-1]
    await_that(lambda: connection._body_timer is not None, "the first part was read")
    client.close()
    await_that(lambda: connection._body_timer is None, "the connection is gone")
    assert served.ways.long == 0


# What takes the application


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
def test_what_is_no_plain_review_is_answered_as_ever(
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


def test_a_body_in_chunks_is_read_by_the_parser(served: Served) -> None:
    client = served.connect()
    body = json.dumps(REVIEW).encode()
    head = (
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    chunks = (body[:1000], body[1000:1001], body[1001:])
    client.send(head + b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n")
    assert "patch" in review_in(client.answer())
    assert served.ways.long == 1
    assert is_settled(client)
    assert served.ways.long == 1


def test_so_is_a_head_in_pieces(served: Served) -> None:
    client = served.connect()
    client.send(WHOLE[:20])
    await_that(lambda: served.connections[-1]._in_head, "the head has begun")
    client.send(WHOLE[20:])
    assert "patch" in review_in(client.answer())
    assert served.ways.long == 1
    assert is_settled(client)
    assert served.ways.long == 1


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
@pytest.mark.parametrize("wish", [b"close", b"keep-alive", None])
def test_a_client_that_wants_no_more_is_hung_up_on(
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
    assert is_settled(client) if stays else client.hung_up()


@pytest.mark.parametrize("handle_sync", [True, False])
def test_who_asks_whether_to_go_on_is_told(served: Served, handle_sync: bool) -> None:
    client = served.connect()
    request = WHOLE.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue")
    head, body = request.split(b"\r\n\r\n")
    client.send(head + b"\r\n\r\n" + (body if handle_sync else b""))
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert client.socket.recv(len(interim)) == interim
    client.send(b"" if handle_sync else body)
    assert "patch" in review_in(client.answer())


class Young:
    """A source that has to ask for every namespace."""

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


def test_a_namespace_that_is_too_new_is_asked_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = Young(served.source)
    monkeypatch.setattr(served.ways.mutate, "_source", young)
    client = served.connect()
    client.send(WHOLE)
    assert "patch" in review_in(client.answer())
    assert young.fetched == [SETTLED["metadata"]["namespace"]]
    assert (served.ways.long, served.reviews) == (1, 1)
    assert served.metrics()['podsettle_reviews_total{result="patched"}'] == 1
    assert served.metrics()['podsettle_reviews_total{result="unchanged"}'] == 0
    assert is_settled(client)
    assert served.ways.long == 1


def test_images_that_have_to_be_looked_up_are_left_to_the_application(tmp_path: Path) -> None:
    document = policy_document(**images("registry.example"))
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(document))
    source = ManifestsSource(tmp_path)
    source.refresh()
    drain = Drain(10, 45)
    app = create_app(source, SETTINGS, certificate_expires=lambda: datetime.now(UTC), drain=drain)

    def handle_sync(**spec: Any) -> bytes | None:
        body = json.dumps(review(pod(restartPolicy="Never", **spec))).encode()
        return app.admission_server.handle_sync(body, 7.0, monotonic())

    assert handle_sync(containers=[container("main", "/x")]) is not None
    assert drain.reviews == 1
    assert handle_sync(containers=[container("main", image="registry.example/a:1")]) is None
    assert drain.reviews == 1


def test_a_defect_on_the_way_is_found_by_the_application(
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


def test_a_body_that_breaks_off_ends_the_connection(served: Served) -> None:
    client = served.connect()
    client.send(
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\nno length\r\n"
    )
    assert client.answer().status == 400
    assert client.hung_up()


# What looks like a review and is none


def test_the_body_of_a_request_that_was_answered_early_is_no_request(served: Served) -> None:
    client = served.connect()
    client.send(f"POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: {len(WHOLE)}\r\n\r\n")
    assert client.answer().status == 404
    client.send(WHOLE)
    client.send(of(1))
    assert uid_in(client.answer()) == "1"
    client.send(of(2))
    assert uid_in(client.answer()) == "2"
    assert served.reviews == 2


def test_whoever_sends_the_rest_of_it_is_not_hung_up_on(served: Served) -> None:
    client = served.connect()
    client.send("POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
    assert client.answer().status == 404
    (connection,) = served.connections
    await_that(lambda: connection._timer is not None, "the rest is waited for")
    client.send("67890")
    await_that(lambda: connection._timer is None, "it has come")
    assert is_settled(client)
    assert served.ways.long == 0


def test_nor_is_the_value_of_a_header(served: Served) -> None:
    client = served.connect()
    client.send("GET /livez HTTP/1.1\r\nX: ")
    await_that(lambda: served.connections and served.connections[-1]._in_head, "it has begun")
    client.send(WHOLE)
    assert client.answer().body == b"ok"  # type: ignore[attr-defined]
    assert is_settled(client)
    assert served.reviews == 1


# Requests in a row


def uid_in(answer: Any) -> str:
    return str(review_in(answer)["uid"])


def test_reviews_in_one_segment_are_answered_in_turn(served: Served) -> None:
    client = served.connect()
    client.send(b"".join(map(of, range(4))))
    assert [uid_in(client.answer()) for _ in range(4)] == ["0", "1", "2", "3"]
    # None of them where it was read: they let other clients go first.
    assert served.ways.long == 4
    client.send(of(4))
    assert uid_in(client.answer()) == "4"
    assert served.ways.long == 4


def test_so_are_reviews_among_other_requests(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.ways.mutate, "_source", Young(served.source))
    client = served.connect()
    # The first has to wait for its namespace, the last may not overtake it.
    client.send(of(0) + LIVEZ + of(1) + b"GET /mutate HTTP/1.1\r\nHost: x\r\n\r\n" + of(2))
    assert uid_in(client.answer()) == "0"
    assert client.answer().body == b"ok"  # type: ignore[attr-defined]
    assert uid_in(client.answer()) == "1"
    assert client.answer().status == 405
    assert client.hung_up()
    other = served.connect()
    other.send(LIVEZ + of(3) + of(4))
    assert other.answer().status == 200
    assert [uid_in(other.answer()) for _ in range(2)] == ["3", "4"]
    assert is_settled(other)


def test_a_review_may_end_where_the_next_begins(served: Served) -> None:
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


def test_what_follows_a_goodbye_is_not_begun(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "GOAWAY_CHANCE", 1)
    client = served.connect()
    client.send(of(0) + of(1) + LIVEZ)
    answer = client.answer()
    assert uid_in(answer) == "0"
    assert answer.getheader("connection") == "close"
    assert client.hung_up()
    assert served.reviews == 1


# Idle connections


def test_a_connection_in_use_does_not_end(served: Served) -> None:
    client = served.connect()
    assert is_settled(client)
    (connection,) = served.connections
    before = connection._idle_timer
    connection.loop.call_soon_threadsafe(connection._end_if_idle)
    await_that(lambda: connection._idle_timer is not before, "it was looked at")
    assert not connection.transport.is_closing()
    assert is_settled(client)


def test_an_idle_connection_ends_after_a_review_too(
    source: ManifestsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "IDLE_TIMEOUT_SECONDS", 3)
    drain = Drain(idle_seconds=3600, timeout_seconds=3600)
    app = create_app(
        source, OperatorSettings(), certificate_expires=lambda: datetime.now(UTC), drain=drain
    )
    ways = Ways(app)
    with in_process(app, drain) as server:
        idle, noisy, slow = (server.connect() for _ in range(3))
        for client in (idle, noisy):
            client.send(WHOLE)
            review_in(client.answer())
        assert ways.long == 0
        noisy.send("\r\n")
        # A request under way is no idleness, though it began with the end of another one.
        slow.send(WHOLE + of(1)[:-100])
        review_in(slow.answer())
        assert idle.hung_up()
        assert noisy.hung_up()
        slow.send(of(1)[-100:])
        assert uid_in(slow.answer()) == "1"


# Clients that do not read


def test_requests_that_wait_for_their_turn_keep_more_from_being_read(served: Served) -> None:
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


def test_no_answer_is_made_for_a_client_that_reads_none(served: Served) -> None:
    client = served.connect()
    assert is_settled(client)
    (connection,) = served.connections
    connection.loop.call_soon_threadsafe(connection.pause_writing)
    await_that(lambda: connection.flow.write_paused, "nothing more is written")
    assert connection._write_timer is not None
    client.send(of(1))
    await_that(lambda: served.app.state.in_flight.count, "it is left to the application")
    client.send(of(2))
    await_that(lambda: connection.flow.read_paused, "no more is read")
    connection.loop.call_soon_threadsafe(connection.resume_writing)
    await_that(lambda: connection._write_timer is None, "it is no longer waited for")
    assert [uid_in(client.answer()) for _ in range(2)] == ["1", "2"]
    assert is_settled(client)


# Turns


async def test_a_turn_lasts_until_all_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "monotonic", count(1).__next__)
    loop, present = asyncio.get_running_loop(), protocol.LoopTick()
    assert [present.started_at(loop), present.started_at(loop)] == [1, 1]
    await asyncio.sleep(0)
    assert [present.started_at(loop), present.started_at(loop)] == [2, 2]


def test_reviews_that_are_there_together_came_together(
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
    # Each of them waits for those that are read before it.
    assert set(together) == {together[0]}
