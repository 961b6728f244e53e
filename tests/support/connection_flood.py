"""Thousands of connections to a server, and attempts at connections."""

from __future__ import annotations

import resource
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

from tests.support.process import RunningServer
from tests.support.waiting import TIMEOUT_SECONDS, await_that


@contextmanager
def file_limit(files: int) -> Iterator[None]:
    """Set the soft limit on open files while the block runs, and for processes started in it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < files:
        pytest.skip(f"needs {files} open files, and the limit is {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@dataclass
class Flood:
    """Connections whose client neither reads nor sends, from the oldest to the newest."""

    server: RunningServer
    port: int
    sockets: list[socket.socket] = field(default_factory=list)

    def open_plain(self, count: int, first: bytes = b"") -> None:
        """Open connections without a handshake, and send some bytes on each."""
        for _ in range(count):
            self._connect().sendall(first)

    def open_tls(self, count: int, first: bytes = b"") -> None:
        """Open connections, complete their handshakes, and send some bytes on each."""
        context = ssl.create_default_context(cafile=self.server.ca)
        for _ in range(count):
            secure = context.wrap_socket(self._connect(), server_hostname="127.0.0.1")
            with suppress(OSError):  # The server may have closed it already.
                secure.sendall(first)
            # The connection stays open without the state of TLS, which takes 50 KiB.
            self.sockets[-1] = socket.socket(fileno=secure.detach())

    def _connect(self) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_SECONDS)
        self.sockets.append(found)
        return found

    def open(self) -> list[int]:
        """Return the indices of the connections that the server has not closed."""
        ended = select.poll()
        for found in self.sockets:
            ended.register(found, select.POLLRDHUP)
        closed = {descriptor for descriptor, _event in ended.poll(0)}
        return [index for index, found in enumerate(self.sockets) if found.fileno() not in closed]

    def await_open(self, count: int) -> None:
        """Wait until no more than so many connections are open, which are the newest ones."""
        await_that(lambda: len(self.open()) <= count, f"no more than {count} connections are open")

    def close(self) -> None:
        for found in self.sockets:
            found.close()
        self.sockets.clear()


@contextmanager
def flood(server: RunningServer, *, web: bool = False) -> Iterator[Flood]:
    """Yield a flood of a port, without connections. The end of the block closes all."""
    found = Flood(server, server.web_port if web else server.port)
    try:
        yield found
    finally:
        found.close()


def client_hello() -> bytes:
    """Return the first message of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def long_client_hello() -> bytes:
    """Return most of the longest first message that OpenSSL accepts: it keeps 128 KiB for it."""
    message = b"\x01" + (131_000).to_bytes(3, "big") + b"\x03\x03" + bytes(130_000)
    pieces = [message[at : at + 16_384] for at in range(0, len(message), 16_384)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


@contextmanager
def renewing_connections(server: RunningServer, clients: int, *, web: bool) -> Iterator[list[int]]:
    """Complete handshakes and close the connections while the block runs. Yield their number."""
    context = ssl.create_default_context(cafile=server.ca)
    address = "127.0.0.1", server.web_port if web else server.port
    over = threading.Event()
    counts = [0] * clients

    def renew(index: int) -> None:
        while not over.is_set():
            with (
                suppress(OSError),
                socket.create_connection(address, TIMEOUT_SECONDS) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1"),
            ):
                counts[index] += 1

    threads = [threading.Thread(target=renew, args=(index,)) for index in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        over.set()
        for thread in threads:
            thread.join()
