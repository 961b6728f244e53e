"""Connections of a ReviewProtocol without sockets, with a handler for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple, cast

from tests.support.memory_transport import MemoryTransport
from webhook.server.connections.protocol import ReviewProtocol, ReviewServer, State
from webhook.server.drain import Drain
from webhook.server.limits import Limits
from webhook.server.reviews.body import MemoryBudget, ReviewBody
from webhook.server.reviews.handler import ReviewTiming
from webhook.server.reviews.request import Refusal


class ManualHandle:
    """A scheduled callback."""

    def __init__(self, seconds: float, callback: Callable[..., Any], *arguments: Any) -> None:
        self.seconds = seconds
        self._callback = callback
        self._arguments = arguments
        self.pending = True

    def cancel(self) -> None:
        self.pending = False

    def run(self) -> None:
        if self.pending:
            self.pending = False
            self._callback(*self._arguments)


class ManualLoop:
    """The methods of a loop that protocols use. Tasks run on the loop of the test."""

    def __init__(self) -> None:
        self.timers_started = 0
        """The number of all timers so far."""
        self._timers: list[ManualHandle] = []
        self._ready: list[ManualHandle] = []

    def call_later(
        self, delay: float, callback: Callable[..., Any], *arguments: Any
    ) -> ManualHandle:
        self.timers_started += 1
        self._timers.append(ManualHandle(delay, callback, *arguments))
        return self._timers[-1]

    def call_soon(self, callback: Callable[..., Any], *arguments: Any) -> ManualHandle:
        self._ready.append(ManualHandle(0, callback, *arguments))
        return self._ready[-1]

    def create_task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(coroutine)

    @property
    def timers(self) -> list[float]:
        """The times of the timers that run."""
        self._timers = [timer for timer in self._timers if timer.pending]
        return [timer.seconds for timer in self._timers]

    def expire(self, seconds: float) -> None:
        """Run the one timer that has this time."""
        (timer,) = [t for t in self._timers if t.pending and t.seconds == seconds]
        timer.run()

    def iterate(self) -> None:
        """Run the callbacks that were scheduled for the next iteration."""
        ready, self._ready = self._ready, []
        for handle in ready:
            handle.run()


LOOKUP = b"look-up "
"""A body that begins with this waits for `EchoHandler.found`."""
INVALID = b"invalid"
"""A body that is refused."""
BODY_SECONDS = 5.0


def post(body: bytes, *headers: str, path: str = "/mutate", length: int | None = None) -> bytes:
    """Return a review with any body. `length` replaces the true Content-Length."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}\r\n\r\n")
    return "\r\n".join(lines).encode() + body


class Echo(NamedTuple):
    """An answer, as far as a protocol uses it."""

    body: bytes
    review: bytes
    missing: bool = False


class EchoHandler:
    """Answers `echo:` and the body, after a look-up if the body begins with LOOKUP."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.budget = MemoryBudget(limits.memory_bytes)
        self.drain = Drain(idle_seconds=10, timeout_seconds=45)
        self.found = asyncio.Event()
        self.timings: list[ReviewTiming] = []
        self.clients: list[str] = []
        """The addresses of the clients whose reviews needed a look-up."""
        self.refused: list[int] = []
        """The status of each request that was counted as refused."""
        self.waiting = 0
        """The number of look-ups that are neither complete nor cancelled."""
        self.count_refused = self.refused.append

    def answer(self, body: bytes, timing: ReviewTiming) -> Echo | Refusal:
        self.timings.append(timing)
        if body == INVALID:
            return Refusal(400, "invalid")
        return Echo(b"echo:" + body, body, missing=body.startswith(LOOKUP))

    def answer_body(self, body: ReviewBody, timing: ReviewTiming) -> Echo | Refusal:
        if not body.complete and not body.data:
            return Refusal(408, "too late")
        if body.complete:
            return self.answer(body.data, timing)
        self.timings.append(timing)
        return Echo(b"part:" + body.data, body.data)

    async def look_up(self, answer: Echo, _timing: ReviewTiming, client: str) -> Echo:
        self.clients.append(client)
        self.waiting += 1
        try:
            await self.found.wait()
        finally:
            self.waiting -= 1
        return answer._replace(missing=False)

    def body_timeout(self, deadline_seconds: float) -> float:
        return min(deadline_seconds, BODY_SECONDS)


class CheckedProtocol(ReviewProtocol):
    """A protocol that notes if something leads out of the state CLOSING."""

    left_closing = False

    def __setattr__(self, name: str, value: object) -> None:
        if name == "state" and getattr(self, name, None) is State.CLOSING is not value:
            self.left_closing = True
        super().__setattr__(name, value)


class MemoryServer:
    """What connections share, and the connections that a test makes."""

    def __init__(
        self,
        *,
        needs_certificate: bool = False,
        **limits: Any,
    ) -> None:
        self.loop = ManualLoop()
        self.limits = replace(Limits(goaway_chance=0), **limits)
        self.handler = EchoHandler(self.limits)
        self.drain = self.handler.drain
        self.budget = self.handler.budget
        self.is_ready = True
        self.protocols: list[CheckedProtocol] = []
        self.shared = ReviewServer(
            handler=self.handler,  # type: ignore[arg-type]
            is_ready=lambda: self.is_ready,
            needs_certificate=needs_certificate,
        )

    def connect(self, **extra: Any) -> MemoryClient:
        """Return the client of a new connection. `extra` is what its transport knows."""
        protocol = CheckedProtocol(self.shared, cast(asyncio.AbstractEventLoop, self.loop))
        self.protocols.append(protocol)
        return MemoryClient(protocol, MemoryTransport(protocol, **extra))

    async def run(self) -> None:
        """Run callbacks and tasks until nothing changes."""
        for _ in range(10):
            self.loop.iterate()
            await asyncio.sleep(0)

    def check_released(self) -> None:
        """Check that no connection has left anything behind."""
        assert not self.loop.timers
        assert self.budget.used_bytes == 0
        assert not self.shared.connections
        assert self.shared.requests() == self.handler.waiting == 0
        assert not any(protocol.left_closing for protocol in self.protocols)
        assert all(protocol._ending is None for protocol in self.protocols)


class MemoryClient:
    """A client whose bytes reach the protocol directly."""

    def __init__(self, protocol: CheckedProtocol, transport: MemoryTransport) -> None:
        self.protocol = protocol
        self.transport = transport

    def is_in(self, state: State) -> bool:
        return self.protocol.state is state

    def send(self, *pieces: bytes) -> None:
        size = len(self.protocol.get_buffer(-1))
        for piece in pieces:
            for begin in range(0, len(piece), size):
                part = piece[begin : begin + size]
                self.protocol.get_buffer(-1)[: len(part)] = part
                self.protocol.buffer_updated(len(part))

    @property
    def answers(self) -> list[tuple[int, bytes, bool]]:
        """Status, body and `Connection: close` of each answer. Removes them."""
        found = []
        rest = bytes(self.transport.sent)
        while b"\r\n\r\n" in rest:
            head, rest = rest.split(b"\r\n\r\n", 1)
            lines = head.lower().split(b"\r\n")
            headers = dict(line.split(b": ", 1) for line in lines[1:])
            length = int(headers.get(b"content-length", 0))
            assert length <= len(rest)
            closes = headers.get(b"connection") == b"close"
            found.append((int(head.split()[1]), rest[:length], closes))
            rest = rest[length:]
        assert not rest
        self.transport.sent.clear()
        return found
