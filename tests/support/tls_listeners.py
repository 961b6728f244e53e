"""Listeners on the loopback address that answer like a kubelet, or wrongly."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import trustme

from tests.support.process import free_port
from tests.support.waiting import TIMEOUT_SECONDS, await_that

INTERNAL_ERROR, HANDSHAKE_FAILURE = 80, 40

Answer = Callable[[socket.socket], None]


def alert(number: int, version: bytes = b"\x03\x03") -> Answer:
    """Return an answer that sends a fatal TLS alert after the ClientHello."""

    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"\x15" + version + b"\0\2\2" + bytes([number]))

    return answer


def says(answer: bytes) -> Answer:
    """Return an answer that sends fixed bytes after the client's first bytes."""

    def answer_with(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(answer)

    return answer_with


def close_connection(connection: socket.socket) -> None:
    """Close the connection without an answer."""


def stay_silent(connection: socket.socket) -> None:
    """Read without answering until the client closes the connection."""
    while connection.recv(4096):
        pass


def handshake(context: ssl.SSLContext) -> Answer:
    """Return an answer that is OpenSSL's handshake."""

    def answer(connection: socket.socket) -> None:
        with suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True):
            # The client closes the connection after the ServerHello. OpenSSL reports an error.
            pass

    return answer


@dataclass
class Listener:
    """A running listener, with its number of connections."""

    host: str
    port: int
    connections: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)


@contextmanager
def listening(*answers: Answer, host: str = "127.0.0.1", port: int = 0) -> Iterator[Listener]:
    """Listen while the block runs. The last of `answers` also answers all further connections."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as server:
        listener = Listener(host, server.getsockname()[1])
        threads: list[threading.Thread] = []

        def serve(answer: Answer, connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.settimeout(TIMEOUT_SECONDS)
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
            accepting.join(TIMEOUT_SECONDS)
            for thread in threads:
                thread.join(TIMEOUT_SECONDS)


@contextmanager
def dropping(host: str = "127.0.0.1") -> Iterator[Listener]:
    """Answer no connection, as a firewall that drops packets: the queue of a listener is full."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server((host, 0), backlog=0))
        address = server.getsockname()

        def is_taken() -> bool:
            client = stack.enter_context(socket.socket())
            client.settimeout(2)
            return client.connect_ex(address) == 0

        while is_taken():
            pass
        yield Listener(*address)


def server_context(
    *, key: trustme.KeyType = trustme.KeyType.ECDSA, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """Return a server's TLS context with a new certificate, for one version of TLS or for all."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA(key_type=key).issue_cert("node.example", key_type=key).configure_cert(context)
    if version:
        context.minimum_version = context.maximum_version = version
    return context


@contextmanager
def openssl_server(directory: Path, *options: str) -> Iterator[Listener]:
    """Run `openssl s_server` on IPv4 and IPv6 while the block runs."""
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
        process.communicate(timeout=TIMEOUT_SECONDS)
