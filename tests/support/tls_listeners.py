"""Listeners on the loopback address that behave as a kubelet might, and as it should not."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import trustme

from tests.support.process import free_port
from tests.support.waiting import await_that

PATIENCE = 60.0
INTERNAL_ERROR, HANDSHAKE_FAILURE = 80, 40

Answer = Callable[[socket.socket], None]


def alert(number: int, version: bytes = b"\x03\x03") -> Answer:
    """A fatal TLS alert, once the client has said hello."""

    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"\x15" + version + b"\0\2\2" + bytes([number]))

    return answer


def says(answer: bytes) -> Answer:
    """The same bytes to everybody, once the client has said something."""

    def answer_with(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(answer)

    return answer_with


def hang_up(connection: socket.socket) -> None:
    """Close without a word."""


def stay_silent(connection: socket.socket) -> None:
    """Read whatever comes, and answer nothing until the client goes away."""
    while connection.recv(4096):
        pass


def handshake(context: ssl.SSLContext) -> Answer:
    """What OpenSSL answers, by way of Python."""

    def answer(connection: socket.socket) -> None:
        with suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True):
            pass  # The client leaves after the ServerHello, which OpenSSL calls an error.

    return answer


@dataclass
class Listener:
    """A listener at work."""

    host: str
    port: int
    connections: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)


@contextmanager
def listening(*answers: Answer, host: str = "127.0.0.1", port: int = 0) -> Iterator[Listener]:
    """Answer each connection in its turn, and all further ones as the last of those."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as server:
        listener = Listener(host, server.getsockname()[1])
        threads: list[threading.Thread] = []

        def serve(answer: Answer, connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.settimeout(PATIENCE)
                answer(connection)

        def accept() -> None:
            while True:
                connection, _ = server.accept()
                if listener.stopped.is_set():
                    connection.close()
                    return
                answer = answers[min(listener.connections, len(answers) - 1)]
                listener.connections += 1
                threads.append(threading.Thread(target=serve, args=(answer, connection)))
                threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener
        finally:
            listener.stopped.set()
            socket.create_connection((host, listener.port)).close()
            accepting.join(PATIENCE)
            for thread in threads:
                thread.join(PATIENCE)


def server_context(
    *, key: trustme.KeyType = trustme.KeyType.ECDSA, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """A server's context with a new certificate, for one version of TLS or for all."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA(key_type=key).issue_cert("node.example", key_type=key).configure_cert(context)
    if version:
        context.minimum_version = context.maximum_version = version
    return context


@contextmanager
def openssl_server(directory: Path, *options: str) -> Iterator[Listener]:
    """`openssl s_server`, on IPv4 and IPv6."""
    trustme.CA().issue_cert("node.example").private_key_and_cert_chain_pem.write_to_path(
        directory / "server.pem"
    )
    port = free_port()
    command = ["openssl", "s_server", "-quiet", "-accept", str(port), *options]
    process = subprocess.Popen(
        [*command, "-cert", str(directory / "server.pem")],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def accepts() -> bool:
        assert process.poll() is None, "openssl s_server ended"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            return False
        return True

    try:
        await_that(accepts, "openssl s_server listens")
        yield Listener("127.0.0.1", port)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)
