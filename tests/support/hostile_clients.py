"""Clients that abuse a server: they send slowly, send without end, or do not read.

None of them reads to find out whether the server has closed its connection.
"""

from __future__ import annotations

import select
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.http_client import Client
from tests.support.process import RunningServer
from tests.support.waiting import await_that

_DRIP_SECONDS = 0.05
_FLOOD_SECONDS = 0.001
"""For other threads of the test, which would wait for the interpreter's lock."""


class Crowd:
    """Connections of clients that abuse a port of a server."""

    def __init__(self, server: RunningServer, port: int) -> None:
        self.clients: list[Client] = []
        self._address = "127.0.0.1", port
        self._context = ssl.create_default_context(cafile=server.ca)

    def connect(self, count: int, first: bytes = b"") -> list[Client]:
        """Open connections, and send some bytes on each."""
        added = [Client(self._address, self._context) for _ in range(count)]
        self.clients += added
        for client in added:
            client.send(first)
        return added

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
        return ports & {client.socket.getsockname()[1] for client in self.clients}

    def open(self) -> list[Client]:
        """Return the clients that have not received the end of their connection."""
        ended = select.poll()
        by_descriptor = {client.socket.fileno(): client for client in self.clients}
        for descriptor in by_descriptor:
            ended.register(descriptor, select.POLLRDHUP)
        for descriptor, _event in ended.poll(0):
            del by_descriptor[descriptor]
        return list(by_descriptor.values())

    @contextmanager
    def dripping(self, piece: bytes) -> Iterator[None]:
        """Send a piece on each connection again and again, until the server closes it."""
        over = threading.Event()

        def drip() -> None:
            while not over.wait(_DRIP_SECONDS):
                for client in self.open():
                    with suppress(OSError):
                        client.send(piece)

        with _thread(drip, over):
            yield

    @contextmanager
    def flooding(self, piece: bytes) -> Iterator[None]:
        """Send a piece on each connection again and again, as fast as the server takes it."""
        over = threading.Event()

        def flood() -> None:
            sent = dict.fromkeys(self.clients, 0)
            for client in self.clients:
                client.socket.setblocking(False)
            while not over.wait(_FLOOD_SECONDS) and (clients := self.open()):
                for client in clients:
                    with suppress(OSError):
                        sent[client] += client.socket.send(piece[sent[client] % len(piece) :])

        with _thread(flood, over):
            yield


@contextmanager
def _thread(target: Callable[[], None], over: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=target)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def crowd(server: RunningServer, *, web: bool = False) -> Iterator[Crowd]:
    """Yield a crowd without connections. The end of the block closes all."""
    found = Crowd(server, server.web_port if web else server.port)
    try:
        yield found
    finally:
        for client in found.clients:
            client.close()
