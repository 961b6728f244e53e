"""A connection that answers a review at once, where it is read.

uvicorn has the parser call back for each header, makes a task and an ASGI cycle of each request,
and two writes of each answer: more work than the decision. Here they are for what has to wait, for
a namespace, an image, or the rest of a body, and for whatever is no plain review: the application
then does all of it, as though nothing had been tried before.

uvicorn waits for the head of a request for as long as it takes, and for the rest of one that was
answered early. Here is an end to slow clients; none of it costs a request more than setting a flag.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from random import random
from time import monotonic
from typing import Any, NamedTuple
from weakref import ref

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from webhook.server.request_body import GUARANTEED_BODY_BYTES
from webhook.server.request_head import END, LONGEST, read_head
from webhook.server.responses import CLOSE, JSON, Header

HEADER_TIMEOUT_SECONDS = 10
"""From the first byte of a request to the end of its headers."""
DRAIN_BODY_TIMEOUT_SECONDS = 5
"""For the rest of a request that was answered before it had come: hanging up at once would make
the client fail to write, and never read the answer (`mapRoundTripError` of Go's net/http)."""
WRITE_TIMEOUT_SECONDS = 7
"""For a client to read on, once it has left some of its answers unread."""
WRITE_HIGH_WATER_BYTES = 64 * 1024
"""Bytes of answers that are encrypted and wait for their client; the answers wait behind them."""
CLOSE_TIMEOUT_SECONDS = 1
"""For a client to hang up as well."""
_NO_UPGRADE = "This server has HTTP/1.1 only: send no Upgrade header, and no CONNECT."
MAX_HEADER_BYTES = 64 * 1024
"""Bytes of a request line and headers; a token in them takes a few thousand."""
BODY_WAIT_SECONDS = 0.05
"""Seconds for the rest of a request. An API server writes the head of a request and its body apart,
and now and then the one is read before the other is there."""

TIMING_KEY = "arrival"
"""Where in a request's `state` its RequestTiming is."""
CLIENT_CERTIFICATE_KEY = "client certificate"
"""Where in a request's `state` the verified certificate of the client is, if it showed one."""
GOAWAY_CHANCE = 0.001
"""That a connection is closed with an answer, as by `--goaway-chance` of the API server itself: its
connections live for as long as they are used, so a new replica would get next to nothing."""


def should_close() -> bool:
    """Whether a connection is to be closed with the answer that is about to be given."""
    return random() < GOAWAY_CHANCE  # noqa: S311


class LoopTick:
    """When the loop started_at to read in its present turn.

    What is read in a turn had all been sent before it was read, so whoever comes last has waited
    for those before him. `loop.time()` would not tell: uvloop's looks at the clock whenever it is
    asked.
    """

    __slots__ = ("_started_at",)

    def __init__(self) -> None:
        self._started_at: float | None = None

    def started_at(self, loop: AbstractEventLoop) -> float:
        """By `time.monotonic`; for whoever reads."""
        if self._started_at is None:
            self._started_at = monotonic()
            # The loop comes to it once it has read from everybody.
            loop.call_soon(self._end)
        return self._started_at

    def _end(self) -> None:
        self._started_at = None


class ResponseHead(NamedTuple):
    """Of an answer with a review."""

    text: bytes
    """Up to the length of the body, which comes last."""
    closes: bool
    """Whether it says that the connection ends."""


class ResponseHeads:
    """The head for each list of headers, made when the list is another one.

    uvicorn makes a new list every second, for the date, and never changes one.
    """

    __slots__ = ("_head", "_headers")

    def __init__(self) -> None:
        self._headers: list[Header] | None = None
        self._head: ResponseHead

    def of(self, headers: list[Header]) -> ResponseHead:
        """The head with these headers."""
        if headers is not self._headers:
            lines = [b"%b: %b\r\n" % header for header in (*headers, JSON)]
            text = b"HTTP/1.1 200 OK\r\n%bcontent-length: " % b"".join(lines)
            self._head = ResponseHead(text, CLOSE in headers)
            self._headers = headers
        return self._head


class RequestTiming:
    """When a request came, and whether all of it has come by now."""

    __slots__ = ("_cycle", "received_at")

    def __init__(self, received_at: float, cycle: RequestResponseCycle) -> None:
        self.received_at = received_at
        """By `time.monotonic`."""
        # Not the cycle itself: it holds the request's state, and so this. What holds itself stays,
        # with its connection and the buffers of that, until the collector comes by.
        self._cycle = ref(cycle)

    @property
    def complete(self) -> bool:
        """Whether the body is there to its end."""
        cycle = self._cycle()
        return cycle is not None and not cycle.more_body


@dataclass(slots=True)
class AdmissionServer:
    """What the connections of one server share."""

    handle_sync: Callable[[bytes, float, float], bytes | None]
    needs_certificate: bool
    """Whether reviews are for clients alone that showed a certificate."""
    tick: LoopTick = field(default_factory=LoopTick)
    heads: ResponseHeads = field(default_factory=ResponseHeads)


class FastPathProtocol(HttpToolsProtocol):
    """One connection of a client."""

    _buffer = b""
    """What came of a request that may be answered at once, while the rest of it is waited for."""
    _body_timer: asyncio.TimerHandle | None = None
    """The end of the patience with the rest."""
    _received_at = 0.0
    """When what is being read came, at the latest; by `time.monotonic`."""
    _in_head = False
    """Whether the parser has begun on a request and not come to the end of its headers."""
    _authorized = False
    """Whether the client has shown what it has to."""

    def __init__(self, *, admission: AdmissionServer, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._at_once = admission.handle_sync
        self._needs_certificate = admission.needs_certificate
        self._tick = admission.tick
        self._heads = admission.heads

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note who it is."""
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        self._authorized = bool(certificate) or not self._needs_certificate
        if certificate:
            self.app_state = {**self.app_state, CLIENT_CERTIFICATE_KEY: certificate}

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._cancel_body_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Answer what came, or let the parser have it, and by that the application."""
        self._received_at = self._tick.started_at(self.loop)
        self._unset_keepalive_if_required()
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        if self._is_idle and self._authorized and self._try_fast_path(data):
            return
        self._cancel_body_timer()
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
        state[TIMING_KEY] = RequestTiming(self._received_at, self.cycle)

    @property
    def _is_idle(self) -> bool:
        """Whether the parser is between two requests, and the application has answered the last."""
        # None at first, whatever its type says.
        cycle: RequestResponseCycle | None = self.cycle
        return not self._in_head and (
            cycle is None or (cycle.response_complete and not cycle.more_body)
        )

    def _try_fast_path(self, data: bytes) -> bool:
        """Answer a review that came whole, or wait for its rest; False where it is neither.

        The parser never sees it: it is between two requests before and after.
        """
        end = data.find(END, 0, LONGEST) + len(END)
        head = read_head(data[:end]) if end >= len(END) else None
        if head is None:
            return False
        missing = end + head.length - len(data)
        if missing > 0:
            return self._await_body(data)
        # One at a time: whoever sends many in a row takes turns with the other clients.
        if missing < 0 or self.flow.write_paused:
            return False
        answer = self._at_once(data[end:], head.deadline, self._received_at)
        if answer is None:
            return False
        self._cancel_body_timer()
        self._write(answer)
        return True

    def _write(self, body: bytes) -> None:
        headers = self.server_state.default_headers
        if should_close():
            headers = [*headers, CLOSE]
        head = self._heads.of(headers)
        self.transport.write(b"%b%d\r\n\r\n%b" % (head.text, len(body), body))
        if head.closes:
            self.transport.close()
        self.server_state.total_requests += 1

    def _await_body(self, data: bytes) -> bool:
        """Wait for the rest for a moment; and for no more than there is always room for."""
        if len(data) > GUARANTEED_BODY_BYTES:
            return False
        self._buffer = data
        if self._body_timer is None:
            self._body_timer = self.loop.call_later(BODY_WAIT_SECONDS, self._on_body_timeout)
        return True

    def _cancel_body_timer(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _on_body_timeout(self) -> None:
        # It was the client that was waited for: no sign of load.
        self._received_at = min(self._received_at + BODY_WAIT_SECONDS, monotonic())
        self._delegate()

    def _delegate(self) -> None:
        """Leave a request that has not come to its end to the application."""
        self._cancel_body_timer()
        if self._buffer:
            data, self._buffer = self._buffer, b""
            super().data_received(data)


class _UpgradeError(Exception):
    """A request for another protocol. The parser stops at it, and uvicorn answers 400."""


class _Flow(FlowControl):
    """uvicorn's, which reads on after each answer, however many requests are waiting for theirs."""

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        # The request before those that wait has come to its end.
        if not self._pipeline:
            super().resume_reading()


class AdmissionProtocol(FastPathProtocol):
    """One connection of a client."""

    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _write_timer: asyncio.TimerHandle | None = None
    """The end of the patience with a client that does not read."""
    _idle_timer: asyncio.TimerHandle | None = None
    """Looks now and then whether something came; to start a timer anew after each review would
    take longer than to read its head."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client that sends nothing is idle, as between two requests."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES)
        self._received_at = monotonic()
        self._schedule_idle_check(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._cancel_timer()
        self._cancel_write_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        super().connection_lost(exc)
        # uvicorn leaves this timer running where the connection broke.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Take what came; an unfinished head may take neither long nor much."""
        super().data_received(data)
        if self._in_head:
            self._watch_head(len(data))

    def on_headers_complete(self) -> None:
        """The head has come in time."""
        self._head_bytes = 0
        if self._timer is not None:
            self._cancel_timer()
        if self._asks_for_another_protocol:
            self._in_head = False
            if not self._is_idle:
                # Its answer would be taken for that of the request before.
                self.transport.abort()
            raise _UpgradeError
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is being read, and close the connection."""
        super().send_400_response(_NO_UPGRADE if self._asks_for_another_protocol else msg)

    @property
    def _asks_for_another_protocol(self) -> bool:
        """Whether the request has an Upgrade header, or is a CONNECT.

        The parser takes what follows such a head for another protocol: uvicorn goes on without the
        body, or reads the body as the next request.
        """
        # Before the first request they are None, whatever their type says.
        named = any(name == b"upgrade" for name, _ in self.headers or ())
        return named or bool(self.parser.should_upgrade())

    def on_message_complete(self) -> None:
        """The rest of a request that was answered early has come as well."""
        super().on_message_complete()
        if self.cycle.response_complete:
            # uvicorn leaves it at that, as though there was more to come.
            self.cycle.more_body = False
            self._cancel_timer()

    def on_response_complete(self) -> None:
        """Give a client that is still sending a while to finish."""
        super().on_response_complete()
        # With requests in a row, the one that is being read may be a later one.
        if self.cycle.more_body and self.cycle.response_complete:
            self._set_timer(DRAIN_BODY_TIMEOUT_SECONDS)

    def pause_writing(self) -> None:
        """Wait for a client to read; what it does not read takes up memory, and a task its turn."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITE_TIMEOUT_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read."""
        self._cancel_write_timer()
        super().resume_writing()

    def shutdown(self) -> None:
        """Close it if it is idle; one that has begun a request is answered first."""
        if self._in_head:
            return
        self._delegate()
        super().shutdown()
        if self.transport.is_closing():
            self._close()

    def _schedule_idle_check(self, seconds: float) -> None:
        self._idle_timer = self.loop.call_later(seconds, self._end_if_idle)

    def _end_if_idle(self) -> None:
        """Hang up on a client that has sent nothing for long, and has no answer coming."""
        left = self._received_at + self.timeout_keep_alive - monotonic()
        if left > 0 or not self._is_idle:
            self._schedule_idle_check(left if left > 0 else self.timeout_keep_alive)
        else:
            self._close()

    def _watch_head(self, received: int) -> None:
        if self.transport.is_closing():
            return
        if not self._head_bytes:
            self._set_timer(HEADER_TIMEOUT_SECONDS)
            # What came with it may belong to the request before.
            received = 1
        self._head_bytes += received
        if self._head_bytes > MAX_HEADER_BYTES:
            self.send_400_response(f"The head is longer than {MAX_HEADER_BYTES} bytes.")

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _set_timer(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer = self.loop.call_later(seconds, self._close)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self._cancel_timer()
        self.transport.close()
        # uvloop would wait 30 s for the client to end its side of TLS, and uvicorn for uvloop.
        self._timer = self.loop.call_later(CLOSE_TIMEOUT_SECONDS, self.transport.abort)
