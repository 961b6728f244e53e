"""Failed TLS handshakes in the log and in the metrics, of a server and of single events."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from tests.support.http_client import InProcess, in_process
from tests.support.server_fixtures import make_components
from tests.support.waiting import await_that
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.server.connections.failed_handshakes import (
    LOG_INTERVAL_SECONDS,
    MAX_LINES_PER_INTERVAL,
    FailedHandshakes,
)
from webhook.server.metric_labels import HandshakeFailure
from webhook.server.reviews.client_certs import request_client_certificate

Serve = Callable[..., InProcess]
ADDRESS = ("10.0.0.7", 4711)


@pytest.fixture(autouse=True)
def _log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "webhook")


@pytest.fixture
def guarded(source: ManifestsSource, tmp_path: Path) -> Iterator[InProcess]:
    """A server that verifies the certificates of clients."""
    file = tmp_path / "client-ca.crt"
    trustme.CA().cert_pem.write_to_path(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    request_client_certificate(context, file)
    with in_process(make_components(source, needs_certificate=True), context) as running:
        yield running


def failures(server: InProcess) -> dict[str, float]:
    """The number of failed handshakes by reason."""
    name = "podsettle_handshakes_failed_total"
    return {
        sample.labels["reason"]: sample.value
        for metric in server.components.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == name
    }


def await_failure(server: InProcess, reason: str, count: int = 1) -> None:
    await_that(lambda: failures(server)[reason] == count, f"{count} failures: {reason}")
    assert sum(failures(server).values()) == count


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "handshake" in message]


def exchange(server: InProcess, data: bytes) -> str:
    """Send data without TLS until the server closes the connection. Return the own address."""
    with socket.create_connection(server.address, timeout=30) as connection:
        host, port = connection.getsockname()
        connection.sendall(data)
        while connection.recv(100):
            pass
    return f"{host} port {port}"


def shake_hands(server: InProcess, context: ssl.SSLContext) -> None:
    with (  # noqa: PT012 (TLS 1.3 fails later)
        pytest.raises((ssl.SSLError, ConnectionError)),
        socket.create_connection(server.address, timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=server.address[0]) as connection,
    ):
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        # With TLS 1.3 the client's certificate is refused after the client's part has ended.
        connection.recv(1)
        raise ConnectionError


def test_each_reason_is_a_series_from_the_start(serve: Serve) -> None:
    assert failures(serve()) == dict.fromkeys(HandshakeFailure, 0)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_certificate_of_another_ca_is_logged_and_counted(
    guarded: InProcess, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.create_default_context()
    context.maximum_version = version
    guarded.ca.configure_trust(context)
    trustme.CA().issue_cert("api-server.test").configure_cert(context)
    shake_hands(guarded, context)
    await_failure(guarded, "client_certificate")
    (line,) = lines(caplog)
    assert line.startswith("TLS handshake with 127.0.0.1 port ")
    assert "the certificate of the client is refused: unable to get local issuer" in line
    assert line.endswith("is it signed by the CA in --client-ca?")


def test_client_that_does_not_trust_the_server_is_logged_and_counted(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    shake_hands(server, ssl.create_default_context())
    await_failure(server, "alert")
    (line,) = lines(caplog)
    assert "the client sent the alert 'unknown ca'" in line


def test_plain_http_is_logged_with_the_address_of_its_client(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    client = exchange(server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await_failure(server, "invalid")
    assert lines(caplog) == [
        f"TLS handshake with {client} failed: the client sent HTTP without TLS; use https://"
    ]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_old_tls_version_is_logged_and_counted(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    context = ssl.create_default_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    shake_hands(server, context)
    await_failure(server, "invalid")
    assert "podsettle accepts TLS 1.2 and 1.3" in lines(caplog)[0]


def test_slow_handshake_is_logged_and_counted(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(handshake_timeout_seconds=0.2)
    exchange(server, b"\x16\x03\x01")
    await_failure(server, "timeout")
    assert lines(caplog)[0].endswith("failed: the client was too slow")


def test_oldest_of_too_many_handshakes_is_counted_once(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(max_handshakes=0, handshake_timeout_seconds=3600)
    exchange(server, b"")
    await_failure(server, "too_many")
    assert len(lines(caplog)) == 1


def test_disconnect_is_counted_and_not_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    socket.create_connection(server.address).close()
    await_failure(server, "disconnected")
    assert not lines(caplog)


def test_complete_handshake_and_its_disconnect_are_no_failure(serve: Serve) -> None:
    server = serve()
    client = server.connect()
    assert client.get("/livez").status == 200
    client.close()
    exchange(server, b"no TLS, so the counter has seen the connection before\r\n")
    await_failure(server, "invalid")


def test_flood_of_failures_gives_one_line_and_all_are_counted(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    for _ in range(50):
        exchange(server, b"GET / HTTP/1.1\r\n\r\n")
    await_failure(server, "invalid", 50)
    assert len(lines(caplog)) == 1


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_line_after_the_interval_has_the_number_of_suppressed_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    counted: list[HandshakeFailure] = []
    failed = FailedHandshakes(counted.append, clock)
    failed.record(ADDRESS, HandshakeFailure.INVALID, "first")
    clock.now += LOG_INTERVAL_SECONDS / 2
    for _ in range(1000):
        failed.record(ADDRESS, HandshakeFailure.INVALID, "between")
    clock.now += LOG_INTERVAL_SECONDS / 2
    failed.record(ADDRESS, HandshakeFailure.INVALID, "next")
    clock.now += LOG_INTERVAL_SECONDS
    failed.record(ADDRESS, HandshakeFailure.INVALID, "last")
    assert lines(caplog) == [
        "TLS handshake with 10.0.0.7 port 4711 failed: first",
        "TLS handshake with 10.0.0.7 port 4711 failed: next "
        "(1000 more of this kind since the last line)",
        "TLS handshake with 10.0.0.7 port 4711 failed: last",
    ]
    assert len(counted) == 1003


def test_failure_of_another_reason_is_not_suppressed(caplog: pytest.LogCaptureFixture) -> None:
    failed = FailedHandshakes(clock=Clock())
    for reason in HandshakeFailure:
        for _ in range(3):
            failed.record(ADDRESS, reason, f"cause {reason}")
    assert [line.rpartition(" ")[2] for line in lines(caplog)] == list(HandshakeFailure)


def test_failures_of_one_client_hide_no_line_about_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    failed = FailedHandshakes(clock=clock)
    for second in range(60):
        if second % LOG_INTERVAL_SECONDS == 0:
            failed.record(("10.0.0.66", second), HandshakeFailure.ALERT, "attack")
        failed.record(("10.0.0.1", second), HandshakeFailure.ALERT, "unknown ca")
        clock.now += 1
    logged = lines(caplog)
    assert sum("10.0.0.1 port" in line for line in logged) == 60 / LOG_INTERVAL_SECONDS
    assert sum("10.0.0.66 port" in line for line in logged) == 60 / LOG_INTERVAL_SECONDS


def test_other_ports_of_a_client_give_no_further_lines(caplog: pytest.LogCaptureFixture) -> None:
    failed = FailedHandshakes(clock=Clock())
    for port in range(100):
        failed.record((f"{'::ffff:' * (port % 2)}10.0.0.7", port), HandshakeFailure.ALERT, "cause")
    assert len(lines(caplog)) == 1


def test_lines_about_many_clients_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    failed = FailedHandshakes(clock=clock)
    for number in range(1000):
        failed.record((f"10.0.{number // 250}.{number % 250}", 1), HandshakeFailure.ALERT, "cause")
        clock.now += LOG_INTERVAL_SECONDS / 1000
    assert len(lines(caplog)) == MAX_LINES_PER_INTERVAL
    clock.now += LOG_INTERVAL_SECONDS
    failed.record(ADDRESS, HandshakeFailure.ALERT, "cause")
    more = 1000 - MAX_LINES_PER_INTERVAL
    assert lines(caplog)[-1].endswith(f"cause ({more} more of this kind since the last line)")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (("10.0.0.7", 1), "10.0.0.7 port 1"),
        (("::ffff:10.0.0.7", 1, 0, 0), "10.0.0.7 port 1"),
        (("2001:db8::7", 1, 0, 0), "2001:db8::7 port 1"),
        (("fe80::7%eth0", 1, 0, 2), "fe80::7%eth0 port 1"),
        (None, "an unknown client"),
    ],
)
def test_line_names_the_client_of_any_address(
    address: object, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    FailedHandshakes(clock=Clock()).record(address, HandshakeFailure.TIMEOUT, "slow")
    assert lines(caplog) == [f"TLS handshake with {name} failed: slow"]
