"""What becomes of connections, on a real server: slow clients, early answers, certificates."""

from __future__ import annotations

import gc
import json
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tests.support.http_client import Client, InProcess, in_process, mutate, review_in
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that
from webhook.cluster.manifest_source import ManifestsSource
from webhook.core.admission.decide import OperatorSettings
from webhook.server import protocol
from webhook.server import run as serve
from webhook.server.app import create_app
from webhook.server.client_certs import ClientCAError, ask_for_client_certificate
from webhook.server.drain import Drain
from webhook.server.preview import route

REVIEW = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))
WHOLE = mutate(REVIEW)


@pytest.fixture
def server(source: ManifestsSource) -> Iterator[InProcess]:
    drain = Drain(idle_seconds=3600, timeout_seconds=3600)
    app = create_app(
        source,
        OperatorSettings(linger_image="registry.example/linger:1"),
        certificate_expires=lambda: datetime(2027, 1, 1, tzinfo=UTC),
        drain=drain,
    )
    with in_process(app, drain) as running:
        yield running


def is_settled(client: Client, query: str = "") -> bool:
    client.send(mutate(REVIEW, query))
    return "patch" in review_in(client.answer())


# Slow clients


def test_a_head_that_takes_too_long_ends_the_connection_and_no_other(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEADER_TIMEOUT_SECONDS", 0.2)
    unused, between, slow, dripping = (server.connect() for _ in range(4))
    assert is_settled(between)
    slow.send("GET /livez HTTP/1.1\r\nHo")
    assert slow.hung_up()
    with pytest.raises((ssl.SSLError, OSError)):  # noqa: PT012 (any of them may be the one)
        dripping.send("GET /livez HTTP/1.1\r\n")
        while True:
            dripping.send("x: y\r\n")
    assert is_settled(unused)
    assert is_settled(between)


def test_a_second_request_has_no_more_time_for_its_head(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEADER_TIMEOUT_SECONDS", 0.2)
    client = server.connect()
    assert is_settled(client)
    client.send(WHOLE[:30])
    assert client.hung_up()


def test_a_head_in_pieces_is_read(server: InProcess) -> None:
    client = server.connect()
    for _ in range(2):
        for part in (WHOLE[:20], WHOLE[20:60], WHOLE[60:]):
            client.send(part)
        assert "patch" in review_in(client.answer())


def test_a_head_in_pieces_that_is_whole_in_time_ends_nothing(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEADER_TIMEOUT_SECONDS", 2)
    client, slow = server.connect(), server.connect()
    for part in (WHOLE[:20], WHOLE[20:]):
        client.send(part)
    assert "patch" in review_in(client.answer())
    slow.send(WHOLE[:20])
    assert slow.hung_up()
    assert is_settled(client)


def test_a_head_without_end_is_refused(server: InProcess) -> None:
    client = server.connect()
    client.send("GET /livez HTTP/1.1\r\n")
    client.send(b"x: " + b"y" * (2 * protocol.MAX_HEADER_BYTES + 1024 * 1024))
    assert client.answer().status == 400
    assert client.hung_up()


def test_what_is_no_request_does_not_keep_a_connection_open(
    source: ManifestsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "IDLE_TIMEOUT_SECONDS", 3)
    drain = Drain(idle_seconds=3600, timeout_seconds=3600)
    app = create_app(
        source, OperatorSettings(), certificate_expires=lambda: datetime.now(UTC), drain=drain
    )
    with in_process(app, drain) as server:
        unused, idle, noisy = (server.connect() for _ in range(3))
        for client in (idle, noisy):
            assert client.get("/livez").status == 200
        noisy.send("\r\n")
        assert unused.hung_up()
        assert idle.hung_up()
        assert noisy.hung_up()


# The deadline


def test_a_body_that_comes_too_late_is_answered_in_time(server: InProcess) -> None:
    client = server.connect()
    client.send(mutate(REVIEW, "?timeout=200ms")[:-100])
    response = review_in(client.answer())
    assert "patch" not in response
    assert "podsettle: DeadlineExceeded: " in response["warnings"][0]
    # The connection can be used again once the client has sent all that it announced.
    client.send(WHOLE[-100:])
    assert is_settled(client)
    metrics = server.connect().get("/metrics").body  # type: ignore[attr-defined]
    assert b'podsettle_outcomes_total{reason="DeadlineExceeded",remedy=""} 1.0' in metrics


def test_who_never_sends_the_rest_is_hung_up_on(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "DRAIN_BODY_TIMEOUT_SECONDS", 0.2)
    client = server.connect()
    client.send(mutate(REVIEW, "?timeout=200ms")[:-100])
    assert "DeadlineExceeded" in review_in(client.answer())["warnings"][0]
    assert client.hung_up()


def test_without_a_uid_there_is_no_review_to_answer(server: InProcess) -> None:
    client = server.connect()
    client.send(mutate(b'{"request"', "?timeout=200ms", length=100))
    answer = client.answer()
    assert answer.status == 408
    assert client.hung_up()


def test_a_preview_whose_workload_never_ends_is_given_up(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "BODY_TIMEOUT_SECONDS", 0.2)
    client = server.connect()
    client.send("POST /preview HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nkind")
    assert client.answer().status == 408


def test_a_client_that_gives_up_is_not_counted_as_a_wrong_one(server: InProcess) -> None:
    client = server.connect()
    client.send(WHOLE[:-10])
    await_that(lambda: server.drain.reviews, "the review is under way")
    client.close()

    def nothing_is_under_way() -> bool:
        metrics = server.connect().get("/metrics").body  # type: ignore[attr-defined]
        assert b"podsettle_requests_refused_total{" not in metrics
        return b"podsettle_requests_in_flight 1.0" in metrics  # the question itself

    await_that(nothing_is_under_way, "the review is given up")


# Balance


def test_an_answer_now_and_then_ends_its_connection(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.connect()
    client.send(WHOLE)
    assert client.answer().getheader("Connection") is None
    monkeypatch.setattr(protocol, "GOAWAY_CHANCE", 1)
    client.send(WHOLE)
    answer = client.answer()
    assert "patch" in review_in(answer)
    assert answer.getheader("Connection") == "close"
    assert client.hung_up()


# Requests in a row


def test_requests_sent_without_waiting_are_answered_in_turn(server: InProcess) -> None:
    client = server.connect()
    client.send(WHOLE * 3)
    for _ in range(3):
        assert "patch" in review_in(client.answer())
    assert is_settled(client)


# Other protocols

UPGRADES = [
    "Connection: Upgrade\r\nUpgrade: h2c\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n",
    "connection: keep-alive, upgrade\r\nupgrade: x\r\n",
    "Upgrade: h2c\r\n",
]
SMUGGLED = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"


def asking(path: str, headers: str, body: bytes = SMUGGLED, method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("headers", UPGRADES)
@pytest.mark.parametrize("path", ["/mutate", "/preview", "/livez", "/", "/nowhere"])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_request_for_another_protocol_is_refused_and_its_body_never_read(
    server: InProcess, headers: str, path: str, parts: int
) -> None:
    body = json.dumps(REVIEW).encode()
    request = asking(path, headers, body if path == "/mutate" else SMUGGLED)
    client = server.connect()
    with suppress(ssl.SSLError, OSError):
        for part in (
            (request, b"") if parts == 1 else (request[:90], request[90:-20], request[-20:])
        ):
            client.send(part)
    answer = client.answer()
    assert answer.status == 400
    assert b"send no Upgrade header" in answer.body  # type: ignore[attr-defined]
    assert answer.getheader("connection") == "close"
    assert client.hung_up()
    assert server.drain.reviews == 0


def test_a_connect_is_refused(server: InProcess) -> None:
    client = server.connect()
    client.send(b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED)
    assert client.answer().status == 400
    assert client.hung_up()


def test_no_answer_is_taken_for_that_of_the_request_before(server: InProcess) -> None:
    client = server.connect()
    client.send(mutate(REVIEW, "?timeout=5s")[:-10])
    await_that(lambda: server.drain.reviews, "the review is under way")
    client.send(mutate(REVIEW)[-10:] + asking("/mutate", UPGRADES[0]))
    with suppress(ssl.SSLError, OSError):
        found = client.socket.recv(65536)
        assert found == b"" or found.startswith(b"HTTP/1.1 200 ")


# Client certificates


@pytest.fixture
def client_ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def closed(source: ManifestsSource, client_ca: trustme.CA, tmp_path: Path) -> Iterator[InProcess]:
    """A server whose /mutate is for clients with a certificate."""
    file = tmp_path / "client-ca.crt"
    client_ca.cert_pem.write_to_path(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ask_for_client_certificate(context, file)
    drain = Drain(idle_seconds=3600, timeout_seconds=3600)
    app = create_app(
        source,
        OperatorSettings(linger_image="registry.example/linger:1"),
        certificate_expires=lambda: datetime.now(UTC),
        drain=drain,
        client_certificates=True,
    )
    with in_process(app, drain, context) as running:
        yield running


def test_who_shows_a_certificate_is_answered(closed: InProcess, client_ca: trustme.CA) -> None:
    client = closed.connect(client_ca.issue_cert("api-server.test"))
    for _ in range(3):
        assert is_settled(client)


def test_who_shows_none_gets_the_probes_and_no_review(closed: InProcess) -> None:
    client = closed.connect()
    assert client.get("/livez").status == 200
    client.send(WHOLE)
    answer = client.answer()
    assert answer.status == 403
    assert b"needs a client certificate" in answer.body  # type: ignore[attr-defined]
    metrics = client.get("/metrics").body  # type: ignore[attr-defined]
    assert b'podsettle_requests_refused_total{status="403"} 1.0' in metrics


def test_who_shows_one_of_another_ca_gets_nothing(closed: InProcess) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):  # noqa: PT012 (in TLS 1.3 the end follows)
        client = closed.connect(trustme.CA().issue_cert("api-server.test"))
        client.get("/livez")


def test_a_file_that_is_no_bundle_is_told(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(ClientCAError, match="No such file"):
        ask_for_client_certificate(context, tmp_path / "none")
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(ClientCAError, match="is not a bundle"):
        ask_for_client_certificate(context, tmp_path / "ca.crt")


# What is left of a connection


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("broken", [False, True], ids=["closed", "broken"])
def test_a_connection_that_is_over_takes_no_memory(server: InProcess, broken: bool) -> None:
    client = server.connect()
    assert is_settled(client)
    assert client.get("/livez").status == 200
    if broken:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await_that(lambda: not _connections(), "nothing of the connection is left")


def _connections() -> list[object]:
    """What there is of connections and their requests, be it out of reach."""
    kinds = protocol.AdmissionProtocol, RequestResponseCycle
    return [found for found in gc.get_objects() if isinstance(found, kinds)]
