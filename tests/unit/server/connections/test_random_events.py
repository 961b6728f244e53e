"""Random events on several connections: whatever happens, each connection ends and frees all."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.memory_server import INVALID, LOOKUP, MemoryClient, MemoryServer, post
from webhook.server.connections.protocol import State

SEQUENCES, EVENTS = 100, 60
REQUESTS = (
    post(b"review"),
    post(b"review"),
    post(b"x" * 90_000),
    post(b"x" * 200_000),
    post(b"x" * 300_000),
    post(b"review", "Connection: close"),
    post(b"review", "Expect: 100-continue"),
    post(INVALID),
    post(LOOKUP),
    post(LOOKUP),
    post(LOOKUP + b"x" * 300_000),
    post(b"body", path="/preview"),
    b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /readyz HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
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
            max_body_bytes=350_000,
            max_review_bytes=100_000,
            goaway_chance=random.choice((0, 0.3)),
        )
        self._clients: list[MemoryClient] = []
        self._to_send: dict[MemoryClient, bytes] = {}
        self._other_bytes = 0
        """What others occupy of the memory budget."""

    @property
    def open(self) -> list[MemoryClient]:
        return [client for client in self._known if not client.transport.aborted]

    @property
    def _known(self) -> list[MemoryClient]:
        """The connections of which the protocol does not know that they are lost."""
        return [client for client in self._clients if not client.transport.lost]

    async def happen(self) -> None:
        """Let one event happen."""
        names = ["send"] * 12 + ["connect", "stop_reading", "read"] * 3
        names += ["lose", "time", "run", "shutdown", "exhaust", "find", "drain"]
        name = self._random.choice(names)
        if name in ("send", "stop_reading", "read", "lose") and self._known:
            # Events of a transport may follow its abort.
            getattr(self, name)(self._random.choice(self._known))
        elif name in ("time", "run"):
            await getattr(self, name)()
        elif name == "connect" or not self.open:
            self._clients.append(self.server.connect())
        elif self._random.random() < 0.2:
            getattr(self, name)()
        if self._random.random() < 0.3:
            await self.run()

    def send(self, client: MemoryClient) -> None:
        count = self._random.choice((1, 1, 2, 5))
        data = self._to_send.get(client) or b"".join(self._random.choices(REQUESTS, k=count))
        length = self._random.choice((1, len(data), self._random.randint(1, len(data))))
        self._to_send[client] = data[length:]
        client.send(data[:length])

    def stop_reading(self, client: MemoryClient) -> None:
        if not client.transport.paused:
            more = self._random.choice((0, 100, 70_000))
            client.transport.capacity = len(client.transport.sent) + more

    def read(self, client: MemoryClient) -> None:
        client.transport.capacity = None
        client.transport.read_all()

    def lose(self, client: MemoryClient) -> None:
        client.transport.lose(self._random.choice((None, ConnectionResetError())))

    async def time(self) -> None:
        await self.run()
        times = self.server.loop.timers
        if times and times.count(seconds := self._random.choice(times)) == 1:
            self.server.loop.expire(seconds)

    async def run(self) -> None:
        """Let all callbacks and tasks run, and check what then holds."""
        await self.server.run()
        timers = 0
        for client in self.open:
            timers += not client.is_in(State.LOOKING_UP)
            assert client.protocol in self.server.shared.connections
        assert len(self.server.loop.timers) == timers
        if all(client.is_in(State.IDLE) or client.is_in(State.CLOSING) for client in self.open):
            assert self.server.budget.used_bytes == self._other_bytes
            assert self.server.shared.requests() == 0

    def shutdown(self) -> None:
        for connection in list(self.server.shared.connections):
            connection.shutdown()

    def exhaust(self) -> None:
        other_bytes = 0 if self._other_bytes else self.server.budget.limit_bytes + 1
        self.server.budget.used_bytes += other_bytes - self._other_bytes
        self._other_bytes = other_bytes

    def find(self) -> None:
        self.server.handler.found.set()

    def drain(self) -> None:
        self.server.drain.start()

    def check(self) -> None:
        """Check what holds at any time."""
        connections = self.server.shared.connections
        assert len(connections) <= self.server.limits.max_connections
        closing = [found.state is State.CLOSING for found in connections]
        assert sum(closing) <= self.server.limits.max_closing
        assert closing == sorted(closing, reverse=True)  # They are the first to be aborted.
        assert self.server.budget.used_bytes >= self._other_bytes
        for client in self.open:
            assert client.is_in(State.CLOSING) == client.transport.closed
        assert not any(protocol.left_closing for protocol in self.server.protocols)

    async def end(self) -> None:
        """Lose all connections, and check that nothing is left."""
        await self.run()
        for client in self.open:
            client.transport.lose()
        await self.run()
        self.server.budget.used_bytes -= self._other_bytes
        self.server.check_released()


@pytest.mark.parametrize("block", range(4))
async def test_random_events_leave_nothing_behind(block: int) -> None:
    for number in range(block * SEQUENCES, (block + 1) * SEQUENCES):
        connections = Connections(Random(number))
        for _ in range(EVENTS):
            await connections.happen()
            connections.check()
        await connections.end()
