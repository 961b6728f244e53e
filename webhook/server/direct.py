"""A connection that answers a review at once, where it is read.

uvicorn makes a task and an ASGI cycle of each request, and two writes of each answer: more work
than the decision. Here they are for what has to wait, for a namespace, an image, or the rest of a
body, and for whatever is no plain review: the application then does all of it, as though nothing
had been tried before.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import ref

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from webhook.server.answers import CLOSE
from webhook.server.balance import is_last
from webhook.server.body import ALWAYS_KEPT
from webhook.server.heads import Heads
from webhook.server.turn import Turn

if TYPE_CHECKING:
    from webhook.server.mutate import Mutate

_PATIENCE = 0.05
"""Seconds for the rest of a body. An API server writes the head of a request and its body apart,
and now and then the one is read before the other is there."""

ARRIVAL = "arrival"
"""Where in a request's `state` its Arrival is."""
CLIENT_CERTIFICATE = "client certificate"
"""Where in a request's `state` the verified certificate of the client is, if it showed one."""


class Arrival:
    """When a request came, and whether all of it has come by now."""

    __slots__ = ("_cycle", "at")

    def __init__(self, at: float, cycle: RequestResponseCycle) -> None:
        self.at = at
        """By `time.monotonic`."""
        # Not the cycle itself: it holds the request's state, and so this. What holds itself stays,
        # with its connection and the buffers of that, until the collector comes by.
        self._cycle = ref(cycle)

    @property
    def complete(self) -> bool:
        """Whether the body is there to its end."""
        cycle = self._cycle()
        return cycle is not None and not cycle.more_body


@dataclass(frozen=True, slots=True)
class DirectWay:
    """What the connections of one server share."""

    mutate: Mutate
    needs_certificate: bool
    """Whether reviews are for clients alone that showed a certificate."""
    turn: Turn = field(default_factory=Turn)
    heads: Heads = field(default_factory=Heads)


class DirectConnection(HttpToolsProtocol):
    """One connection of a client."""

    _pieces: list[bytes] | None = None
    """The body, so far, of a request that may be answered at once; None between such requests."""
    _deadline = 0.0
    """For the same request."""
    _came = 0.0
    """When what is being read came, at the latest; by `time.monotonic`."""
    _may_send_reviews = False
    """Whether the client has shown what it has to."""
    _may_try = False
    """Whether a request may still be answered at once: one in each piece that is read."""
    _waiting: asyncio.TimerHandle | None = None
    """The end of the patience with the rest of a body."""

    def __init__(self, *, way: DirectWay, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._mutate = way.mutate
        self._needs_certificate = way.needs_certificate
        self._turn = way.turn
        self._heads = way.heads

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note who it is."""
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        self._may_send_reviews = bool(certificate) or not self._needs_certificate
        if certificate:
            self.app_state = {**self.app_state, CLIENT_CERTIFICATE: certificate}

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a body that has not come to its end."""
        self._pieces = None
        self._wait_no_longer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        self._came = self._turn.began(self.loop)
        # One at a time: whoever sends many in a row takes turns with the other clients.
        self._may_try = self._may_send_reviews and self._pieces is None
        super().data_received(data)
        if self._pieces is not None:
            self._wait_for_the_rest(self._pieces)
        elif self._waiting is not None:
            self._wait_no_longer()

    def on_headers_complete(self) -> None:
        """Wait for the body of a plain review, and let the application begin on anything else."""
        if self._may_try and self._is_plain:
            deadline = self._mutate.deadline(self.url, self.headers)
            if deadline is not None:
                self._may_try = False
                self._deadline = deadline
                self._pieces = []
                return
        self._take_the_long_way()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of a body."""
        if self._pieces is None:
            super().on_body(body)
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Answer, if that needs no waiting."""
        if self._pieces is not None:
            review = b"".join(self._pieces)
            answer = self._mutate.at_once(review, self._deadline, self._came)
            if answer is not None:
                self._pieces = None
                self._write(answer)
                return
            self._take_the_long_way()
        super().on_message_complete()

    @property
    def _is_idle(self) -> bool:
        """Whether the application has answered all that it was handed."""
        # None at first, whatever its type says.
        cycle: RequestResponseCycle | None = self.cycle
        return self._pieces is None and (cycle is None or cycle.response_complete)

    @property
    def _is_plain(self) -> bool:
        """Whether a request asks for no more than one answer, and nothing is before it."""
        parser = self.parser
        return (
            self._is_idle
            and not self.flow.write_paused
            and not self.expect_100_continue
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
        )

    def _write(self, body: bytes) -> None:
        headers = self.server_state.default_headers
        if is_last():
            headers = [*headers, CLOSE]
        head = self._heads.of(headers)
        self.transport.write(b"%b%d\r\n\r\n%b" % (head.text, len(body), body))
        if head.closes:
            self.transport.close()
        self.server_state.total_requests += 1

    def _wait_for_the_rest(self, pieces: list[bytes]) -> None:
        """For a moment; and for no more than there is always room for."""
        if sum(map(len, pieces)) > ALWAYS_KEPT:
            self._wait_no_longer()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(_PATIENCE, self._lose_patience)

    def _wait_no_longer(self) -> None:
        """Leave a body that has not come to its end to the application."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._pieces is not None:
            self._take_the_long_way()

    def _lose_patience(self) -> None:
        # It was the client that was waited for: no sign of load.
        self._came += _PATIENCE
        self._wait_no_longer()

    def _take_the_long_way(self) -> None:
        """Hand a request to the application, with what came of its body."""
        state: dict[str, Any] = self.scope["state"]
        super().on_headers_complete()
        state[ARRIVAL] = Arrival(self._came, self.cycle)
        pieces, self._pieces = self._pieces, None
        for piece in pieces or ():
            super().on_body(piece)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        # What came behind a request that was answered with a goodbye is not even begun.
        if not self.transport.is_closing():
            super()._start_asgi_task(cycle, app)
