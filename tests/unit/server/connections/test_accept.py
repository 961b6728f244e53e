"""The accept loop of both ports: silent clients, many of them, and clients without TLS."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from tests.support.http_client import InProcess, in_process
from tests.support.server_fixtures import make_components
from tests.support.waiting import TIMEOUT_SECONDS, await_that, eventually
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.server.connections.accept import accept_connections
from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.reviews.client_certs import request_client_certificate

Serve = Callable[..., InProcess]
BOTH_PORTS = pytest.mark.parametrize("web", [False, True], ids=["reviews", "web"])


class Sockets:
    """Connections that begin no handshake by themselves."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def connect(self, server: InProcess, *, web: bool) -> socket.socket:
        address = server.web_address if web else server.address
        return self._stack.enter_context(socket.create_connection(address, timeout=TIMEOUT_SECONDS))


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    with ExitStack() as stack:
        yield Sockets(stack)


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server closes the connection. Return False if it sends data first."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True


def is_served(server: InProcess, *, web: bool) -> bool:
    try:
        return server.connect(web=web).get("/readyz").status == 200
    except OSError:
        return False


@BOTH_PORTS
def test_handshake_timeout_closes_silent_connections(
    serve: Serve, sockets: Sockets, web: bool
) -> None:
    server = serve(handshake_timeout_seconds=0.2)
    begun = sockets.connect(server, web=web)
    begun.sendall(b"\x16\x03\x01")
    assert is_closed(sockets.connect(server, web=web))
    assert is_closed(begun)
    # On a busy machine, a handshake may take longer than the timeout.
    await_that(lambda: is_served(server, web=web), "a client that is in time is served")


@BOTH_PORTS
def test_oldest_handshake_is_ended_if_there_are_too_many(
    serve: Serve, sockets: Sockets, web: bool
) -> None:
    server = serve(max_handshakes=3, max_web_handshakes=3, handshake_timeout_seconds=3600)
    silent = [sockets.connect(server, web=web) for _ in range(50)]
    for oldest in silent[:-3]:
        assert is_closed(oldest)
    assert all(map(is_open, silent[-3:]))
    # Complete handshakes do not count, and neither do those of the other port.
    for _ in range(5):
        assert is_served(server, web=not web)
        assert is_served(server, web=web)
    server.close()  # The exit does not wait for handshakes.


@BOTH_PORTS
@pytest.mark.parametrize(
    "data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 9], ids=len
)
def test_invalid_handshake_closes_the_connection_without_a_line(
    serve: Serve, sockets: Sockets, data: bytes, caplog: pytest.LogCaptureFixture, web: bool
) -> None:
    server = serve(handshake_timeout_seconds=3600)
    garbage = sockets.connect(server, web=web)
    garbage.sendall(data)
    garbage.shutdown(socket.SHUT_WR)
    garbage.recv(100)  # An alert, or the end.
    assert is_closed(garbage)
    assert is_served(server, web=web)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_certificates_of_another_ca_give_one_line_in_ten_seconds(
    source: ManifestsSource, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    version: ssl.TLSVersion,
) -> None:  # fmt: skip
    ca = tmp_path / "client-ca.crt"
    trustme.CA().cert_pem.write_to_path(ca)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    request_client_certificate(context, ca)
    with in_process(make_components(source, needs_certificate=True), context) as server:
        wrong = ssl.create_default_context()
        wrong.maximum_version = version
        server.ca.configure_trust(wrong)
        trustme.CA().issue_cert("api-server.test").configure_cert(wrong)
        for _ in range(3):
            with (  # noqa: PT012 (TLS 1.3 fails later)
                pytest.raises((ssl.SSLError, ConnectionError)),
                socket.create_connection(server.address, timeout=TIMEOUT_SECONDS) as plain,
                wrong.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
            ):
                connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                # With TLS 1.3 the certificate is refused after the client's part has ended.
                assert connection.recv(1) == b""
                raise ConnectionError
        await_that(lambda: caplog.messages, "the failure is logged")
        assert is_served(server, web=False)
        # The web port asks for no certificate, so none is sent.
        client = server.connect(trustme.CA().issue_cert("browser.test"), web=True)
        assert client.get("/version").status == 200
    (line,) = [message for message in caplog.messages if "handshake" in message]
    assert line.startswith("TLS handshake with ('127.0.0.1', ")
    assert "the certificate of the client is refused: unable to get local issuer" in line
    assert line.endswith("is it signed by the CA in --client-ca?")


async def test_line_about_client_certificates_is_repeated_after_the_interval(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    refused = ssl.SSLCertVerificationError()
    refused.verify_message = "unable to get local issuer certificate"
    failures = 0
    seconds = [0.0]

    async def fail(_protocol: object, accepted: socket.socket, **_options: object) -> None:
        nonlocal failures
        failures += 1
        accepted.close()
        raise refused

    monkeypatch.setattr(loop, "connect_accepted_socket", fail)
    start = loop.time()
    monkeypatch.setattr(loop, "time", lambda: start + seconds[0])
    async with _accepting() as address:
        for after, lines in ((0.0, 1), (9.9, 1), (10.1, 2)):
            seconds[0] = after
            before = failures
            socket.create_connection(address).close()
            while failures == before:  # noqa: ASYNC110 (the loop's clock stands still)
                await asyncio.sleep(0)
            assert len(caplog.messages) == lines


async def test_accepting_goes_on_when_descriptors_are_free_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    accept = loop.sock_accept
    errors = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENOMEM, "No memory")]
    monkeypatch.setattr("webhook.server.connections.accept._RETRY_SECONDS", 0.001)

    async def accept_or_fail(listener: socket.socket) -> object:
        if errors:
            raise errors.pop()
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", accept_or_fail)
    async with _accepting() as address:
        with socket.create_connection(address) as client:
            client.setblocking(False)
            client.sendall(b"no TLS at all, for 9 bytes")
            await eventually(lambda: not is_open(client))
    assert not errors
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


class _accepting:  # noqa: N801 (a context manager)
    """An accept loop on the loop of the test. Yields its address."""

    async def __aenter__(self) -> tuple[str, int]:
        listener = socket.create_server(("127.0.0.1", 0))
        address: tuple[str, int] = listener.getsockname()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._task = asyncio.create_task(
            accept_connections(listener, context, asyncio.Protocol, 9, DEFAULT_LIMITS)
        )
        return address

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
        assert self._task.cancelled()
