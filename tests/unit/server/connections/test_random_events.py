"""Random events on several connections: whatever happens, each connection ends and frees all."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.memory_server import LOOKUP, MemoryClient, MemoryServer, post
from webhook.server.connections.protocol import State

SEQUENCES, EVENTS = 100, 60
CHUNKED = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG_REVIEW = post(b"x" * 90_000)
"""The answer has two pieces."""
REQUESTS = (
    post(b"review"),
    post(b"review"),
    LONG_REVIEW,
    post(b"x" * 200_000),
    post(b"review", "Connection: close"),
    post(b"review", "Expect: 100-continue"),
    post(b"review", "Upgrade: x"),
    post(LOOKUP),
    post(LOOKUP + b"x" * 300_000),
    post(b"body", path="/preview"),
    b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    CHUNKED + b"5\r\nabcde\r\n0\r\n\r\n",
    CHUNKED + b"5\r\nabcde\r\n0\r\nTrailer: x\r\n\r\n",
    CHUNKED + b"no size\r\n",
    b"no request\r\n\r\n",
    b"\r\n\r\n",
)


class Connections:
    """The connections of a small server, and the events that happen to them."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.server = MemoryServer(
            max_connections=random.choice((1, 2, 3, 20)),
            max_closing=random.choice((1, 2, 20)),
            max_handed_over=random.choice((1, 20)),
            max_probes=random.choice((1, 20)),
            max_body_bytes=150_000,
            max_review_bytes=100_000,
            goaway_chance=random.choice((0, 0.3)),
        )
        self._clients: list[MemoryClient] = []
        self._to_send: dict[MemoryClient, bytes] = {}
        self._slow: set[MemoryClient] = set()
        """The clients that read nothing after a number of bytes."""
        self._other_bytes = 0
        """What others occupy of the memory budget."""

    @property
    def open(self) -> list[MemoryClient]:
        return [c for c in self._clients if not (c.transport.lost or c.transport.aborted)]

    async def happen(self) -> None:
        """Let one event happen."""
        names = ["send"] * 10 + ["connect", "stop_reading"] * 3 + ["read"]
        names += ["lose", "time", "run", "shutdown", "exhaust", "find", "drain"]
        names += ["cancel", "answer_early"]
        name = self._random.choice(names)
        if name in ("send", "stop_reading", "lose") and self.open:
            getattr(self, name)(self._random.choice(self.open))
        elif name == "read":
            self.read()
        elif name in ("time", "run"):
            await getattr(self, name)()
        elif name == "connect" or not self.open:
            self._clients.append(self.server.connect())
        elif self._random.random() < 0.2:
            getattr(self, name)()
        if self._random.random() < 0.3:
            await self.run()

    def send(self, client: MemoryClient) -> None:
        if not client.transport.reading:
            return
        count = self._random.choice((1, 2, 5))
        data = self._to_send.get(client) or b"".join(self._random.choices(REQUESTS, k=count))
        length = self._random.choice((1, len(data), self._random.randint(1, len(data))))
        self._to_send[client] = data[length:]
        client.send(data[:length])

    def stop_reading(self, client: MemoryClient) -> None:
        if client not in self._slow:
            more = self._random.choice((0, 100, 70_000))
            client.transport.capacity = len(client.transport.sent) + more
            self._slow.add(client)
            # Of a long answer, a part stays unsent.
            self._to_send[client] = self._to_send.get(client) or LONG_REVIEW

    def read(self) -> None:
        """Let a slow client read everything."""
        slow = [client for client in self.open if client in self._slow]
        if not slow:
            return
        client = self._random.choice(slow)
        self._slow.discard(client)
        if client.transport.capacity is None:
            client.transport.read_all()
        client.transport.capacity = None

    def lose(self, client: MemoryClient) -> None:
        if self._random.random() < 0.5:
            client.transport.protocol.eof_received()
        client.lose(self._random.choice((None, ConnectionResetError())))

    async def time(self) -> None:
        await self.run()
        times = self.server.loop.timers
        seconds = self._random.choice(times) if times else None
        if seconds is not None and times.count(seconds) == 1:
            self.server.loop.expire(seconds)
            await self.run()

    async def run(self) -> None:
        await self.server.run()

    def shutdown(self) -> None:
        for connection in list(self.server.uvicorn.connections):
            connection.shutdown()

    def exhaust(self) -> None:
        other_bytes = 0 if self._other_bytes else self.server.budget.limit_bytes + 1
        self.server.budget.used_bytes += other_bytes - self._other_bytes
        self._other_bytes = other_bytes

    def find(self) -> None:
        self.server.handler.found.set()

    def drain(self) -> None:
        self.server.drain.start()

    def cancel(self) -> None:
        for task in self.server.uvicorn.tasks:
            task.cancel()

    def answer_early(self) -> None:
        self.server.app.reads_body = not self.server.app.reads_body

    def check(self) -> None:
        """Check what holds at any time."""
        server = self.server
        assert len(server.shared.connections) <= server.limits.max_connections
        assert len(server.shared.places.probes) <= server.limits.max_probes
        assert len(server.shared.places.others) <= server.limits.max_handed_over
        assert len(server.shared.closing) <= server.limits.max_closing
        assert server.budget.used_bytes >= self._other_bytes
        for client in self.open:
            protocol = client.protocol
            if client.transport.protocol is not protocol:
                continue  # It is handed over.
            assert client.is_in(State.CLOSING) == client.transport.closed
            assert (protocol in server.shared.closing) == client.is_in(State.CLOSING)
            assert protocol in server.uvicorn.connections
            if client.is_in(State.IDLE):
                assert client.transport.reading

    async def end(self) -> None:
        """Lose all connections, and check that nothing is left."""
        await self.run()
        for client in self.open:
            client.lose()
        await self.run()
        self.server.budget.used_bytes -= self._other_bytes
        self.server.check_released()
        assert not self.server.shared.closing


@pytest.mark.parametrize("block", range(4))
async def test_random_events_leave_nothing_behind(block: int) -> None:
    for number in range(block * SEQUENCES, (block + 1) * SEQUENCES):
        connections = Connections(Random(number))
        for _ in range(EVENTS):
            await connections.happen()
            connections.check()
        await connections.end()
