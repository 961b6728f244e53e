"""Clients that abuse a server: they send slowly, send without end, do not read, or are thousands.

None of them reads to find out whether the server has closed its connection.
"""

from __future__ import annotations

import resource
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.http_client import Client
from tests.support.process import RunningServer
from tests.support.waiting import TIMEOUT_SECONDS, await_that, repeating

_DRIP_SECONDS = 0.05
_FLOOD_SECONDS = 0.001
"""For other threads of the test, which would wait for the interpreter's lock."""


class Crowd:
    """Connections to a port of a server, from the oldest to the newest."""

    def __init__(self, server: RunningServer, port: int) -> None:
        self.sockets: list[socket.socket] = []
        self._address = "127.0.0.1", port
        self._context = ssl.create_default_context(cafile=server.ca)

    def connect(self, count: int, first: bytes = b"") -> list[Client]:
        """Open connections, complete their handshakes, and send some bytes on each."""
        added = [Client(self._address, self._context) for _ in range(count)]
        for client in added:
            self.sockets.append(client.socket)
            with suppress(OSError):  # The server may have closed it already.
                client.send(first)
        return added

    def connect_silently(self, count: int, first: bytes = b"") -> None:
        """Do the same for clients that never read nor send: without the 50 KiB of TLS's state."""
        for _ in range(count):
            (client,) = self.connect(1, first)
            self.sockets[-1] = socket.socket(fileno=client.socket.detach())

    def open_plain(self, count: int, first: bytes = b"") -> None:
        """Open connections without a handshake, and send some bytes on each."""
        for _ in range(count):
            self.sockets.append(socket.create_connection(self._address, TIMEOUT_SECONDS))
            self.sockets[-1].sendall(first)

    def open(self) -> list[socket.socket]:
        """Return the connections whose end was not received."""
        ended = select.poll()
        for each in self.sockets:
            ended.register(each, select.POLLRDHUP)
        closed = {descriptor for descriptor, _event in ended.poll(0)}
        return [each for each in self.sockets if each.fileno() not in closed]

    def await_open(self, count: int) -> None:
        """Wait until no more than so many connections are open, which are the newest ones."""
        await_that(lambda: len(self.open()) <= count, f"no more than {count} connections are open")

    def await_end(self) -> None:
        """Wait until the server has closed all connections."""
        await_that(lambda: not self._accepted(), "the server closes the connections")

    def _accepted(self) -> set[int]:
        """Return the ports of the clients whose connections the server has not closed.

        A client that does not read cannot find this out: the end comes after what it has not read.
        """
        established = "01"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ports = {
            int(row[2].rpartition(":")[2], 16)
            for row in rows
            if row[3] == established and int(row[1].rpartition(":")[2], 16) == self._address[1]
        }
        return ports & {each.getsockname()[1] for each in self.sockets}

    @contextmanager
    def dripping(self, piece: bytes) -> Iterator[None]:
        """Send a piece on each connection again and again, until the server closes it."""

        def drip() -> None:
            for each in self.open():
                with suppress(OSError):
                    each.sendall(piece)

        with repeating(drip, pause_seconds=_DRIP_SECONDS) as failed:
            yield
        assert not failed

    @contextmanager
    def flooding(self, piece: bytes) -> Iterator[None]:
        """Send a piece on each connection again and again, as fast as the server takes it."""
        sent = dict.fromkeys(self.sockets, 0)
        for each in self.sockets:
            each.setblocking(False)

        def flood() -> None:
            for each in self.open():
                with suppress(OSError):
                    sent[each] += each.send(piece[sent[each] % len(piece) :])

        with repeating(flood, pause_seconds=_FLOOD_SECONDS) as failed:
            yield
        assert not failed

    def close(self) -> None:
        """Close all connections."""
        for each in self.sockets:
            each.close()
        self.sockets.clear()


@contextmanager
def crowd(server: RunningServer, *, web: bool = False) -> Iterator[Crowd]:
    """Yield a crowd without connections. The end of the block closes all."""
    found = Crowd(server, server.web_port if web else server.port)
    try:
        yield found
    finally:
        found.close()


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
