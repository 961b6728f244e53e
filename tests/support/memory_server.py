"""Connections of a ReviewProtocol without sockets, with a handler and an application for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from time import time
from typing import Any, cast

from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from tests.support.manual_loop import ManualLoop
from tests.support.memory_transport import MemoryTransport
from webhook.server.connections.protocol import ReviewProtocol, ReviewServer, State
from webhook.server.connections.server_clock import ServerClock
from webhook.server.drain import Drain
from webhook.server.limits import Limits
from webhook.server.reviews.body import ReviewBody
from webhook.server.reviews.handler import ReviewTiming
from webhook.server.reviews.http_answer import JSON_TYPE, HttpAnswer, refusal
from webhook.server.reviews.load_shedding import InFlight, MemoryBudget

LOOKUP = b"look-up "
"""A body that begins with this waits for `EchoHandler.found`."""


def post(body: bytes, *headers: str, path: str = "/mutate", length: int | None = None) -> bytes:
    """Return a review with any body. `length` replaces the true Content-Length."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}\r\n\r\n")
    return "\r\n".join(lines).encode() + body


class EchoHandler:
    """Answers `echo:` and the body, after a look-up if the body begins with LOOKUP."""

    def __init__(self) -> None:
        self.found = asyncio.Event()
        self.timings: list[ReviewTiming] = []
        self.clients: list[str] = []
        """The addresses of the clients whose reviews were passed to `handle`."""
        self.bodies: list[bytes] = []
        """The bodies that were passed to `handle`."""
        self.cancelled = 0
        self.answers: Iterable[HttpAnswer | Exception] | None = None
        """The next answers of `handle`, instead of the echo."""

    def handle_now(self, body: bytes, timing: ReviewTiming) -> bytes | None:
        self.timings.append(timing)
        return None if body.startswith(LOOKUP) else b"echo:" + body

    async def handle(self, body: ReviewBody, timing: ReviewTiming, client: str) -> HttpAnswer:
        self.timings.append(timing)
        self.clients.append(client)
        self.bodies.append(body.data)
        if body.data.startswith(LOOKUP):
            try:
                await self.found.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if self.answers is not None:
            answer = next(iter(self.answers))
            if isinstance(answer, Exception):
                raise answer
            return answer
        if body.too_long:
            return refusal(413, "too long", close=True)
        return HttpAnswer(200, b"echo:" + body.data, JSON_TYPE, close=False)

    def body_timeout(self, deadline_seconds: float) -> float:
        return min(deadline_seconds, 5.0)


class Recorder:
    """An ASGI application that answers with the path and the body that it received."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.bodies: list[bytes] = []
        self.disconnects = 0
        self.reads_body = True
        self.answer = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body = b""
        while self.reads_body:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnects += 1
                return
            body += message["body"]
            if not message["more_body"]:
                break
        self.bodies.append(body)
        answer = self.answer or f"{scope['path']}:".encode() + body
        headers = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


class MemoryServer:
    """What connections share, and the connections that a test makes."""

    def __init__(
        self,
        *,
        needs_certificate: bool = False,
        wall_clock: Callable[[], float] = time,
        **limits: Any,
    ) -> None:
        self.loop = ManualLoop()
        self.handler = EchoHandler()
        self.app = Recorder()
        self.drain = Drain(idle_seconds=10, timeout_seconds=45)
        self.budget = MemoryBudget()
        self.in_flight = InFlight()
        self.limits = replace(Limits(goaway_chance=0), **limits)
        self.shared = ReviewServer(
            handler=self.handler,  # type: ignore[arg-type]
            budget=self.budget,
            in_flight=self.in_flight,
            drain=self.drain,
            needs_certificate=needs_certificate,
            limits=self.limits,
            clock=ServerClock(wall_clock),
        )
        self.uvicorn = ServerState()
        self._config = Config(self.app, log_config=None, lifespan="off", ws="none")
        self._config.load()
        self._app_state = {"lifespan": "state"}

    def connect(self, **extra: Any) -> MemoryClient:
        """Return the client of a new connection. `extra` is what its transport knows."""
        protocol = ReviewProtocol(
            server=self.shared,
            config=self._config,
            server_state=self.uvicorn,
            app_state=self._app_state,
            _loop=cast(asyncio.AbstractEventLoop, self.loop),
        )
        return MemoryClient(self, protocol, MemoryTransport(protocol, **extra))

    async def run(self) -> None:
        """Run callbacks and tasks until nothing changes."""
        for _ in range(20):
            self.loop.iterate()
            await asyncio.sleep(0)

    def check_released(self) -> None:
        """Check that no connection has left anything behind."""
        assert not self.loop.timers
        assert self.budget.used_bytes == 0
        assert (self.in_flight.requests, self.in_flight.reviews) == (0, 0)
        assert not self.shared.connections
        assert not self.shared.closing
        assert not self.shared.places.probes
        assert not self.shared.places.others
        assert not self.uvicorn.connections
        assert not self.uvicorn.tasks


class MemoryClient:
    """A client whose bytes reach the protocol directly."""

    def __init__(
        self, server: MemoryServer, protocol: ReviewProtocol, transport: MemoryTransport
    ) -> None:
        self._server = server
        self.protocol = protocol
        self.transport = transport

    def is_in(self, state: State) -> bool:
        return self.protocol.state is state

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            if piece:
                self.transport.protocol.data_received(piece)

    def lose(self, error: Exception | None = None) -> None:
        """Lose the connection."""
        self.transport.lose(error)

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
            if length > len(rest):
                rest = head + b"\r\n\r\n" + rest
                break
            closes = headers.get(b"connection") == b"close"
            found.append((int(head.split()[1]), rest[:length], closes))
            rest = rest[length:]
        self.transport.sent[:] = rest
        return found
