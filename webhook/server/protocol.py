"""The HTTP/1.1 protocol of a connection: the fast path for reviews, and limits for slow clients.

uvicorn calls back for each header, creates a task and an ASGI cycle for each request, and writes
each answer in two pieces. That costs more than the decision. The fast path answers a review that
arrived whole directly from `data_received`. It passes any other request to uvicorn's protocol and
the application unchanged: reviews that need a namespace, an image or the rest of a body, requests
that are not reviews, and requests that it cannot parse.

uvicorn also waits without limit for headers, for a body whose request was answered early, and for
clients that do not read. The limits here cost a request no more than setting a flag.

Long because the fast path and the limits are two halves of one connection's state.
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

from webhook.server.limits import DEFAULT_LIMITS, Limits
from webhook.server.request_body import GUARANTEED_BODY_BYTES
from webhook.server.request_head import HEAD_END, MAX_CACHED_HEAD_BYTES, parse_review_head
from webhook.server.responses import CLOSE, JSON, Header

TIMING_KEY = "timing"
"""The key of the RequestTiming in a request's `state`."""
CLIENT_CERTIFICATE_KEY = "client certificate"
"""The key of the client's verified certificate in a request's `state`."""
_UPGRADE_REFUSED = "This server supports HTTP/1.1 only: send no Upgrade header, and no CONNECT."


def should_close(goaway_chance: float) -> bool:
    """Return whether the next answer closes its connection. Random, with the given probability."""
    return random() < goaway_chance  # noqa: S311


class LoopTick:
    """The start time of the event loop's current iteration.

    All data that one iteration reads was queued when the iteration began, so the queueing time of
    a review counts from there. `loop.time()` does not help: uvloop reads the clock at each call.
    """

    __slots__ = ("_clock", "_started_at")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._started_at: float | None = None

    def started_at(self, loop: AbstractEventLoop) -> float:
        """Return the time by `time.monotonic`. Call it whenever data is received."""
        if self._started_at is None:
            self._started_at = self._clock()
            # The loop runs this callback after it has read from all clients.
            loop.call_soon(self._end)
        return self._started_at

    def _end(self) -> None:
        self._started_at = None


class ResponseHead(NamedTuple):
    """Status line and headers of an answered review."""

    text: bytes
    """Everything up to the value of Content-Length, which is the last header."""
    closes: bool
    """Whether it contains `Connection: close`."""


class ResponseHeads:
    """A cache of the ResponseHead for uvicorn's current default headers.

    uvicorn replaces the list of default headers every second, for the date, and never changes a
    list in place.
    """

    __slots__ = ("_head", "_headers")

    def __init__(self) -> None:
        self._headers: list[Header] | None = None
        self._head: ResponseHead

    def of(self, headers: list[Header]) -> ResponseHead:
        """Return the head with these headers."""
        if headers is not self._headers:
            lines = [b"%b: %b\r\n" % header for header in (*headers, JSON)]
            text = b"HTTP/1.1 200 OK\r\n%bcontent-length: " % b"".join(lines)
            self._head = ResponseHead(text, CLOSE in headers)
            self._headers = headers
        return self._head


class RequestTiming:
    """The time at which a request was received, and whether its body is complete."""

    __slots__ = ("_cycle", "received_at")

    def __init__(self, received_at: float, cycle: RequestResponseCycle) -> None:
        self.received_at = received_at
        """By `time.monotonic`."""
        # A weak reference. The cycle refers to the request's state, and the state to this object:
        # a strong one would keep the connection's buffers alive until the next garbage collection.
        self._cycle = ref(cycle)

    @property
    def complete(self) -> bool:
        """Whether the whole body has been received."""
        cycle = self._cycle()
        return cycle is not None and not cycle.more_body


@dataclass(frozen=True, slots=True)
class AdmissionServer:
    """The state that all connections of a server share."""

    handle_sync: Callable[[bytes, float, float], bytes | None]
    """`AdmissionHandler.handle_sync`."""
    needs_certificate: bool
    """Whether the fast path is only for clients that presented a certificate."""
    limits: Limits = DEFAULT_LIMITS
    tick: LoopTick = field(default_factory=LoopTick)
    heads: ResponseHeads = field(default_factory=ResponseHeads)


class FastPathProtocol(HttpToolsProtocol):
    """A connection that answers reviews itself and leaves all other requests to uvicorn."""

    _buffer = b""
    """The beginning of a request that the fast path may answer once the rest has arrived."""
    _body_timer: asyncio.TimerHandle | None = None
    """Runs while `_buffer` waits for the rest."""
    _received_at = 0.0
    """The time at which the data being read was received, by `time.monotonic`."""
    _in_head = False
    """Whether the parser is between the first byte of a request and the end of its headers."""
    _authorized = False
    """Whether the client presented the required certificate."""

    def __init__(self, *, admission: AdmissionServer, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._handle_sync = admission.handle_sync
        self._needs_certificate = admission.needs_certificate
        self._tick = admission.tick
        self._heads = admission.heads
        self._limits = admission.limits
        self._goaway_chance = admission.limits.goaway_chance

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Record the client's certificate."""
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        self._authorized = bool(certificate) or not self._needs_certificate
        if certificate:
            self.app_state = {**self.app_state, CLIENT_CERTIFICATE_KEY: certificate}

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for the rest of a request."""
        self._cancel_body_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Answer a review, or pass the data to uvicorn's parser."""
        self._received_at = self._tick.started_at(self.loop)
        self._unset_keepalive_if_required()
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        if self._is_idle and self._authorized and self._try_fast_path(data):
            return
        self._cancel_body_timer()
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Note that the parser has begun a request."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start the ASGI application, and give it the time of the request."""
        self._in_head = False
        state: dict[str, Any] = self.scope["state"]
        super().on_headers_complete()
        state[TIMING_KEY] = RequestTiming(self._received_at, self.cycle)

    @property
    def _is_idle(self) -> bool:
        """Whether the parser is between requests and the last request has been answered."""
        # uvicorn sets it to None before the first request, against its annotation.
        cycle: RequestResponseCycle | None = self.cycle
        return not self._in_head and (
            cycle is None or (cycle.response_complete and not cycle.more_body)
        )

    def _try_fast_path(self, data: bytes) -> bool:
        """Answer a whole review, or keep the beginning of one. Return whether either was done.

        The parser does not see this data. It is between two requests before and after.
        """
        end = data.find(HEAD_END, 0, MAX_CACHED_HEAD_BYTES) + len(HEAD_END)
        head = parse_review_head(data[:end]) if end >= len(HEAD_END) else None
        if head is None:
            return False
        missing = end + head.length - len(data)
        if missing > 0:
            return self._await_body(data)
        # Pipelined requests take the slow path, so that other clients are read in between.
        if missing < 0 or self.flow.write_paused:
            return False
        answer = self._handle_sync(data[end:], head.deadline_seconds, self._received_at)
        if answer is None:
            return False
        self._cancel_body_timer()
        self._write(answer)
        return True

    def _write(self, body: bytes) -> None:
        headers = self.server_state.default_headers
        if should_close(self._goaway_chance):
            headers = [*headers, CLOSE]
        head = self._heads.of(headers)
        self.transport.write(b"%b%d\r\n\r\n%b" % (head.text, len(body), body))
        if head.closes:
            self.transport.close()
        self.server_state.total_requests += 1

    def _await_body(self, data: bytes) -> bool:
        """Keep the beginning of a request for a moment. Return False if it is too long for that."""
        if len(data) > GUARANTEED_BODY_BYTES:
            return False
        self._buffer = data
        if self._body_timer is None:
            seconds = self._limits.body_wait_seconds
            self._body_timer = self.loop.call_later(seconds, self._on_body_timeout)
        return True

    def _cancel_body_timer(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _on_body_timeout(self) -> None:
        # Waiting for the client is not queueing, so it must not count as a sign of overload.
        self._received_at = min(self._received_at + self._limits.body_wait_seconds, monotonic())
        self._delegate()

    def _delegate(self) -> None:
        """Pass the kept beginning of a request to uvicorn's parser."""
        self._cancel_body_timer()
        if self._buffer:
            data, self._buffer = self._buffer, b""
            super().data_received(data)


class _UpgradeError(Exception):
    """A request for another protocol. It stops the parser, and uvicorn answers 400."""


class _PipelineFlow(FlowControl):
    """Flow control that does not resume reading while pipelined requests wait.

    uvicorn's own resumes after each answer, so a client could queue requests without limit.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


class AdmissionProtocol(FastPathProtocol):
    """The protocol that the server gives to uvicorn: the fast path with limits for slow clients."""

    _timer: asyncio.TimerHandle | None = None
    """Closes or aborts the connection: header timeout, drain-body timeout or close timeout."""
    _head_bytes = 0
    _write_timer: asyncio.TimerHandle | None = None
    _idle_timer: asyncio.TimerHandle | None = None
    """One repeating timer. Resetting a timer for each review takes longer than parsing its head."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the idle timer: it also ends connections that never send a request."""
        super().connection_made(transport)
        self.flow = _PipelineFlow(transport, self.pipeline)
        transport.set_write_buffer_limits(self._limits.write_high_water_bytes)
        self._received_at = monotonic()
        self._schedule_idle_check(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers."""
        self._cancel_timer()
        self._cancel_write_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        super().connection_lost(exc)
        # uvicorn leaves its keep-alive timer running if the connection broke.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Process the data, and limit the time and length of unfinished headers."""
        super().data_received(data)
        if self._in_head:
            self._check_head(len(data))

    def on_headers_complete(self) -> None:
        """Cancel the header timeout. Refuse a request for another protocol."""
        self._head_bytes = 0
        if self._timer is not None:
            self._cancel_timer()
        if self._requests_upgrade:
            self._in_head = False
            if not self._is_idle:
                # The client would take the 400 for the answer to its previous request.
                self.transport.abort()
            raise _UpgradeError
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer 400 and close the connection."""
        super().send_400_response(_UPGRADE_REFUSED if self._requests_upgrade else msg)

    @property
    def _requests_upgrade(self) -> bool:
        """Whether the request has an Upgrade header, or is a CONNECT.

        Such requests allow request smuggling: the parser takes the data after their headers for
        another protocol, and uvicorn either ignores the body or parses it as the next request.
        """
        # uvicorn sets the headers to None before the first request, against their annotation.
        named = any(name == b"upgrade" for name, _ in self.headers or ())
        return named or bool(self.parser.should_upgrade())

    def on_message_complete(self) -> None:
        """Cancel the drain-body timeout of a request that was answered early."""
        super().on_message_complete()
        if self.cycle.response_complete:
            # uvicorn leaves this flag set after an early answer.
            self.cycle.more_body = False
            self._cancel_timer()

    def on_response_complete(self) -> None:
        """Limit the time for the rest of a body whose request was answered early."""
        super().on_response_complete()
        # With pipelining, `cycle` may belong to a later request that has no answer yet.
        if self.cycle.more_body and self.cycle.response_complete:
            self._set_timer(self._limits.drain_body_timeout_seconds)

    def pause_writing(self) -> None:
        """Start the write timeout: unread answers occupy memory and block the task that writes."""
        super().pause_writing()
        seconds = self._limits.write_timeout_seconds
        self._write_timer = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the write timeout."""
        self._cancel_write_timer()
        super().resume_writing()

    def shutdown(self) -> None:
        """Close the connection if it is idle. A request that has begun is answered first."""
        if self._in_head:
            return
        self._delegate()
        super().shutdown()
        if self.transport.is_closing():
            self._close()

    def _schedule_idle_check(self, seconds: float) -> None:
        self._idle_timer = self.loop.call_later(seconds, self._close_if_idle)

    def _close_if_idle(self) -> None:
        """Close the connection if the idle timeout has passed and no answer is due."""
        left = self._received_at + self.timeout_keep_alive - monotonic()
        if left > 0 or not self._is_idle:
            self._schedule_idle_check(left if left > 0 else self.timeout_keep_alive)
        else:
            self._close()

    def _check_head(self, received: int) -> None:
        """Start the header timeout at the first bytes, and count the bytes that follow."""
        if self.transport.is_closing():
            return
        if not self._head_bytes:
            self._set_timer(self._limits.header_timeout_seconds)
            # This data may begin with the end of the previous request, so it counts as one byte.
            received = 1
        self._head_bytes += received
        limit = self._limits.max_header_bytes
        if self._head_bytes > limit:
            self.send_400_response(f"The headers are longer than {limit} bytes.")

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
        # uvloop would wait 30 s for the client to close its side, and uvicorn waits for uvloop.
        self._timer = self.loop.call_later(self._limits.close_timeout_seconds, self.transport.abort)
