"""The HTTP/1.1 protocol of a connection, with a fast path for reviews and limits for slow clients.

For each request, uvicorn runs a callback per header, creates a task and an ASGI cycle, and writes
the answer in two parts. This takes longer than the decision. The fast path answers a completely
received review directly from `data_received`. It passes all other requests unchanged to uvicorn's
protocol and the application. These are reviews that need a look-up or the rest of a body, requests
that are not reviews, and requests that the fast path cannot parse.

uvicorn has no time limit for headers, for the rest of a body whose request was answered early, or
for clients that do not read. This module adds these limits. For a review on the fast path, they
only check a flag.

Long because the fast path and the limits use the same state of a connection.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from webhook.server.admission import RECEIVED_AT_KEY, ReviewHandler, ReviewTiming
from webhook.server.client_certs import CLIENT_CERTIFICATE_KEY
from webhook.server.drain import Drain
from webhook.server.http_answer import should_close
from webhook.server.limits import DEFAULT_LIMITS, Limits
from webhook.server.request_head import HEAD_END, MAX_CACHED_HEAD_BYTES, parse_review_head
from webhook.server.responses import CLOSE, JSON, Header
from webhook.server.review_body import GUARANTEED_BODY_BYTES

_UPGRADE_ERROR = "This server supports HTTP/1.1 only: send no Upgrade header, and no CONNECT."


class LoopTick:
    """The start time of the event loop's current iteration.

    The data that an iteration reads was already queued when the iteration started. So a review's
    time in the queue counts from this start time. `loop.time()` is not the start time, because
    uvloop updates it at each call.
    """

    __slots__ = ("_clock", "_started_at")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._started_at: float | None = None

    def started_at(self, loop: AbstractEventLoop) -> float:
        """Return the start time, by `time.monotonic`. Call this whenever data is received."""
        if self._started_at is None:
            self._started_at = self._clock()
            # The loop runs this callback after it has read from all clients.
            loop.call_soon(self._reset)
        return self._started_at

    def _reset(self) -> None:
        self._started_at = None


class ResponseHead(NamedTuple):
    """The status line and the headers of the answer to a review."""

    text: bytes
    """The head up to the value of Content-Length, which is the last header. The value is added for
    each answer."""
    closes: bool
    """Whether the headers contain `Connection: close`."""


class ResponseHeads:
    """A cache of one ResponseHead, which belongs to uvicorn's current default headers.

    Every second, uvicorn replaces the list of default headers to update the Date header. It does
    not change the old list, so comparing the identity of the lists is sufficient.
    """

    __slots__ = ("_head", "_headers")

    def __init__(self) -> None:
        self._headers: list[Header] | None = None
        self._head: ResponseHead

    def head_for(self, headers: list[Header]) -> ResponseHead:
        """Return the response head that contains these headers."""
        if headers is not self._headers:
            lines = [b"%b: %b\r\n" % header for header in (*headers, JSON)]
            text = b"HTTP/1.1 200 OK\r\n%bcontent-length: " % b"".join(lines)
            self._head = ResponseHead(text, CLOSE in headers)
            self._headers = headers
        return self._head


@dataclass(frozen=True, slots=True)
class AdmissionServer:
    """The state that all connections of a server share."""

    handler: ReviewHandler
    needs_certificate: bool
    """Whether the fast path is only for clients that presented a certificate."""
    drain: Drain
    limits: Limits = DEFAULT_LIMITS
    tick: LoopTick = field(default_factory=LoopTick)
    heads: ResponseHeads = field(default_factory=ResponseHeads)


class FastPathProtocol(HttpToolsProtocol):
    """A connection that answers most reviews itself and passes all other requests to uvicorn."""

    _buffer = b""
    """The beginning of a request that the fast path may answer once the rest has arrived."""
    _body_timer: asyncio.TimerHandle | None = None
    """The time limit for the rest of the request in `_buffer`."""
    _received_at = 0.0
    """The time at which the latest data was received, by `time.monotonic`."""
    _in_head = False
    """Whether the parser is between the first byte of a request and the end of its headers."""
    _authorized = False
    """Whether the client may use the fast path: it presented a certificate, or needs none."""

    def __init__(self, *, admission: AdmissionServer, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._handle_now = admission.handler.handle_now
        self._needs_certificate = admission.needs_certificate
        self._drain = admission.drain
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
        """Cancel the time limit for the rest of a request."""
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
        """Record that the parser has begun a request."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start the ASGI application, and store the time in the request's state."""
        self._in_head = False
        state: dict[str, Any] = self.scope["state"]
        super().on_headers_complete()
        state[RECEIVED_AT_KEY] = self._received_at

    @property
    def _is_idle(self) -> bool:
        """Whether the parser is between requests and the last request has been answered."""
        # Before the first request, uvicorn sets `cycle` to None, which its annotation excludes.
        cycle: RequestResponseCycle | None = self.cycle
        return not self._in_head and (
            cycle is None or (cycle.response_complete and not cycle.more_body)
        )

    def _try_fast_path(self, data: bytes) -> bool:
        """Answer a complete review, or buffer the beginning of one. Return False for other data.

        If the result is True, uvicorn's parser does not receive the data. The parser is between two
        requests before and after this call.
        """
        end = data.find(HEAD_END, 0, MAX_CACHED_HEAD_BYTES) + len(HEAD_END)
        head = parse_review_head(data[:end]) if end >= len(HEAD_END) else None
        if head is None:
            return False
        missing_bytes = end + head.length - len(data)
        if missing_bytes > 0:
            return self._await_body(data)
        # Pipelined requests are passed to uvicorn, so that the loop reads from other clients
        # between them.
        if missing_bytes < 0 or self.flow.write_paused:
            return False
        timing = ReviewTiming(self._received_at, head.deadline_seconds)
        answer = self._handle_now(data[end:], timing)
        if answer is None:
            return False
        self._cancel_body_timer()
        self._write(answer)
        return True

    def _write(self, body: bytes) -> None:
        """Write an answer, and close the connection if its headers say so."""
        headers = self.server_state.default_headers
        if self._drain.started or should_close(self._goaway_chance):
            headers = [*headers, CLOSE]
        head = self._heads.head_for(headers)
        self.transport.write(b"%b%d\r\n\r\n%b" % (head.text, len(body), body))
        if head.closes:
            self.transport.close()
        self.server_state.total_requests += 1

    def _await_body(self, data: bytes) -> bool:
        """Buffer the beginning of a request, and start the time limit for the rest.

        Return False if the beginning is too long to be buffered.
        """
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
        """Pass the beginning of a request to uvicorn, because the rest has not arrived."""
        # The time spent waiting for the client must not count as time in the queue.
        self._received_at = min(self._received_at + self._limits.body_wait_seconds, monotonic())
        self._pass_buffer_to_parser()

    def _pass_buffer_to_parser(self) -> None:
        """Pass the buffered beginning of a request to uvicorn's parser."""
        self._cancel_body_timer()
        if self._buffer:
            data, self._buffer = self._buffer, b""
            super().data_received(data)


class _UpgradeError(Exception):
    """A request for another protocol. This exception stops the parser, and uvicorn answers 400."""


class _PipelineFlow(FlowControl):
    """Flow control that does not resume reading while pipelined requests wait.

    uvicorn's FlowControl resumes after each answer, so a client could queue requests without limit.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """Resume reading if no pipelined request waits."""
        if not self._pipeline:
            super().resume_reading()


class AdmissionProtocol(FastPathProtocol):
    """The protocol that uvicorn uses: a connection with fast path and limits."""

    _timer: asyncio.TimerHandle | None = None
    """Closes or aborts the connection: header timeout, drain-body timeout or close timeout."""
    _head_bytes = 0
    """The number of bytes received of unfinished headers."""
    _write_timer: asyncio.TimerHandle | None = None
    """The write timeout, which aborts the connection of a client that does not read."""
    _idle_timer: asyncio.TimerHandle | None = None
    """A timer that repeatedly checks whether the connection is idle. To reset a timer for each
    review would take longer than to parse the review's head."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the idle timer, which also closes connections that never send a request."""
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
        # uvicorn does not cancel its keep-alive timer if the connection breaks.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Process the data, and limit the time and length of unfinished headers."""
        super().data_received(data)
        if self._in_head:
            self._limit_head(len(data))

    def on_headers_complete(self) -> None:
        """Cancel the header timeout. Refuse a request for another protocol."""
        self._head_bytes = 0
        if self._timer is not None:
            self._cancel_timer()
        if self._requests_upgrade:
            self._in_head = False
            if not self._is_idle:
                # The client would read the 400 as the answer to its previous request.
                self.transport.abort()
            raise _UpgradeError
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer 400 and close the connection."""
        super().send_400_response(_UPGRADE_ERROR if self._requests_upgrade else msg)

    @property
    def _requests_upgrade(self) -> bool:
        """Whether the request has an Upgrade header, or is a CONNECT.

        These requests would allow request smuggling. The parser treats the data after their headers
        as another protocol, and uvicorn either ignores the body or parses it as the next request.
        """
        # Before the first request, uvicorn sets `headers` to None, which its annotation excludes.
        has_upgrade_header = any(name == b"upgrade" for name, _ in self.headers or ())
        return has_upgrade_header or bool(self.parser.should_upgrade())

    def on_message_complete(self) -> None:
        """Cancel the drain-body timeout of a request that was answered early."""
        super().on_message_complete()
        if self.cycle.response_complete:
            # uvicorn does not reset this flag if the answer was early.
            self.cycle.more_body = False
            self._cancel_timer()

    def on_response_complete(self) -> None:
        """Start the drain-body timeout if the request was answered before its body was received."""
        super().on_response_complete()
        # With pipelining, `cycle` may belong to a later request that has no answer yet.
        if self.cycle.more_body and self.cycle.response_complete:
            self._set_timer(self._limits.drain_body_timeout_seconds)

    def pause_writing(self) -> None:
        """Start the write timeout, because unread answers occupy memory and block a task."""
        super().pause_writing()
        seconds = self._limits.write_timeout_seconds
        self._write_timer = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the write timeout."""
        self._cancel_write_timer()
        super().resume_writing()

    def shutdown(self) -> None:
        """Close the connection when no request is in progress. Answer a request that has begun."""
        if self._in_head:
            return
        self._pass_buffer_to_parser()
        super().shutdown()
        if self.transport.is_closing():
            self._close()

    def _schedule_idle_check(self, seconds: float) -> None:
        self._idle_timer = self.loop.call_later(seconds, self._close_if_idle)

    def _close_if_idle(self) -> None:
        """Close the connection if the idle timeout has passed and no request is in progress.

        Otherwise schedule the next check.
        """
        remaining_seconds = self._received_at + self.timeout_keep_alive - monotonic()
        if remaining_seconds > 0 or not self._is_idle:
            self._schedule_idle_check(
                remaining_seconds if remaining_seconds > 0 else self.timeout_keep_alive
            )
        else:
            self._close()

    def _limit_head(self, received_bytes: int) -> None:
        """Start the header timeout at the first bytes. Answer 400 if the headers are too long."""
        if self.transport.is_closing():
            return
        if not self._head_bytes:
            self._set_timer(self._limits.header_timeout_seconds)
            # This data may begin with the end of the previous request, so the length of these
            # headers is unknown. They count as one byte.
            received_bytes = 1
        self._head_bytes += received_bytes
        limit = self._limits.max_header_bytes
        if self._head_bytes > limit:
            self.send_400_response(f"The headers are longer than {limit} bytes.")

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _set_timer(self, seconds: float) -> None:
        """Close the connection after some seconds, unless the timer is cancelled or set again."""
        self._cancel_timer()
        self._timer = self.loop.call_later(seconds, self._close)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        """Close the connection. Abort it if the client does not close its side in time."""
        self._cancel_timer()
        self.transport.close()
        # uvloop would wait 30 s for the client to close its side, and uvicorn waits for uvloop.
        self._timer = self.loop.call_later(self._limits.close_timeout_seconds, self.transport.abort)
