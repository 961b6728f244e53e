"""A connection that answers a review at once, where it is read.

uvicorn has the parser call back for each header, makes a task and an ASGI cycle of each request,
and two writes of each answer: more work than the decision. Here they are for what has to wait, for
a namespace, an image, or the rest of a body, and for whatever is no plain review: the application
then does all of it, as though nothing had been tried before.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import ref

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from webhook.server.answers import CLOSE
from webhook.server.balance import is_last
from webhook.server.body import ALWAYS_KEPT
from webhook.server.heads import Heads
from webhook.server.review_head import END, LONGEST, read_head
from webhook.server.turn import Turn

if TYPE_CHECKING:
    from webhook.server.admission import Mutate

_PATIENCE = 0.05
"""Seconds for the rest of a request. An API server writes the head of a request and its body apart,
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

    _held = b""
    """What came of a request that may be answered at once, while the rest of it is waited for."""
    _waiting: asyncio.TimerHandle | None = None
    """The end of the patience with the rest."""
    _came = 0.0
    """When what is being read came, at the latest; by `time.monotonic`."""
    _in_head = False
    """Whether the parser has begun on a request and not come to the end of its headers."""
    _may_send_reviews = False
    """Whether the client has shown what it has to."""

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
        """Wait for nothing more."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Answer what came, or let the parser have it, and by that the application."""
        self._came = self._turn.began(self.loop)
        self._unset_keepalive_if_required()
        if self._held:
            data, self._held = self._held + data, b""
        if self._is_at_rest and self._may_send_reviews and self._is_done_with(data):
            return
        self._wait_no_longer()
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """It has come; the application begins."""
        self._in_head = False
        state: dict[str, Any] = self.scope["state"]
        super().on_headers_complete()
        state[ARRIVAL] = Arrival(self._came, self.cycle)

    @property
    def _is_at_rest(self) -> bool:
        """Whether the parser is between two requests, and the application has answered the last."""
        # None at first, whatever its type says.
        cycle: RequestResponseCycle | None = self.cycle
        return not self._in_head and (
            cycle is None or (cycle.response_complete and not cycle.more_body)
        )

    def _is_done_with(self, data: bytes) -> bool:
        """Answer a review that came whole, or wait for its rest; False where it is neither.

        The parser never sees it: it is between two requests before and after.
        """
        end = data.find(END, 0, LONGEST) + len(END)
        head = read_head(data[:end]) if end >= len(END) else None
        if head is None:
            return False
        missing = end + head.length - len(data)
        if missing > 0:
            return self._hold(data)
        # One at a time: whoever sends many in a row takes turns with the other clients.
        if missing < 0 or self.flow.write_paused:
            return False
        answer = self._mutate.at_once(data[end:], head.deadline, self._came)
        if answer is None:
            return False
        self._wait_no_longer()
        self._write(answer)
        return True

    def _write(self, body: bytes) -> None:
        headers = self.server_state.default_headers
        if is_last():
            headers = [*headers, CLOSE]
        head = self._heads.of(headers)
        self.transport.write(b"%b%d\r\n\r\n%b" % (head.text, len(body), body))
        if head.closes:
            self.transport.close()
        self.server_state.total_requests += 1

    def _hold(self, data: bytes) -> bool:
        """Wait for the rest for a moment; and for no more than there is always room for."""
        if len(data) > ALWAYS_KEPT:
            return False
        self._held = data
        if self._waiting is None:
            self._waiting = self.loop.call_later(_PATIENCE, self._lose_patience)
        return True

    def _wait_no_longer(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _lose_patience(self) -> None:
        # It was the client that was waited for: no sign of load.
        self._came = min(self._came + _PATIENCE, monotonic())
        self._let_go()

    def _let_go(self) -> None:
        """Leave a request that has not come to its end to the application."""
        self._wait_no_longer()
        if self._held:
            data, self._held = self._held, b""
            super().data_received(data)
