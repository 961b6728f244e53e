"""The HTTP/1.1 protocol of a connection on the port of reviews.

It answers reviews and probes, and refuses all other requests, as `request_head` describes. It
exists for two things that uvicorn does not have: limits on the time of a request, the number of
its headers and the memory of connections, and a shutdown that loses no review (see below).

States. Each has one timer, or none while the handler limits the time.

| state      | received data                        | other event              | time limit, then |
|------------|--------------------------------------|--------------------------|------------------|
| IDLE       | request: answer it; else RECEIVING   | shutdown: 100 Continue   | idle: close      |
| RECEIVING  | head: answer, or refuse;             | memory exhausted: refuse | header: close;   |
|            | body: answer, or LOOKING_UP          | the head, or answer      | body: answer     |
| LOOKING_UP | discard, and close after the answer  | answer: write it         | the handler's    |
| WRITING    | discard, and close after the answer  | client has read: IDLE    | write: abort     |
| CLOSING    | discard                              |                          | close: abort     |

Nothing leads out of CLOSING. An answer leads to IDLE, to WRITING if the client does not read it, or
to CLOSING if it is the last one: after a shutdown, at the request of the client, after an error, if
the body is incomplete, and if there are bytes behind the request. API servers do not pipeline. In
all states, a lost connection cancels timers and the task, and frees all memory.

The TLS transport of uvloop reads and discards the rest of a body until the client closes its side,
or until the timeout of the TLS shutdown. Otherwise a Go client could fail to write the body, and
would then not read the answer (`mapRoundTripError` in net/http).

Shutdown. If the server closed an idle connection, a review on its way would be lost: net/http does
not repeat a POST, and the API server reports EOF. Therefore the server lets the client close the
connection. It sends `100 Continue` and waits, for at most the shutdown idle timeout. A client
without a request in progress closes a connection on which data arrives (RFC 9112, 9.2). A client
with a request in progress ignores an informational response (RFC 9110, 15.2), and gets its answer.
In net/http both cases exclude each other (`readLoop` and `roundTrip` hold the same lock).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import Enum, auto
from functools import lru_cache
from http import HTTPStatus
from itertools import islice, takewhile
from random import random
from time import monotonic, time

from webhook.core.admission.handler import Answer
from webhook.server.connections.request_head import HEAD_END, RequestHead, invalid_head, read_head
from webhook.server.reviews.body import ReviewBody
from webhook.server.reviews.client_certs import NO_CLIENT_CERTIFICATE
from webhook.server.reviews.handler import GUARANTEED_DECISION_BYTES, ReviewHandler, ReviewTiming
from webhook.server.reviews.request import Refusal, body_too_long

log = logging.getLogger(__name__)

_JSON_TYPE = b"application/json"
_TEXT_TYPE = b"text/plain; charset=utf-8"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Makes the client close an idle connection, and leaves a request on its way unharmed. A final
response such as 408 would be taken for the answer to that request."""
_READ_BUFFER_BYTES = 256 * 1024


class State(Enum):
    """The state of a connection. The table of the module shows the events and time limits."""

    IDLE = auto()
    """No request has begun."""
    RECEIVING = auto()
    """The head of a request or the body of a review is incomplete."""
    LOOKING_UP = auto()
    """A review waits for a look-up."""
    WRITING = auto()
    """The client has to read an answer."""
    CLOSING = auto()
    """The transport is closed."""


_IDLE = State.IDLE
"""In Python 3.11, each look-up of a member takes 0.4 µs."""
_END_BYTES = len(HEAD_END)


@dataclass(slots=True)
class ReviewServer:
    """The objects that all connections of a server share."""

    handler: ReviewHandler
    is_ready: Callable[[], bool]
    """Returns whether the answer to the readiness probe is `ok`."""
    needs_certificate: bool = False
    """Whether /mutate refuses clients that presented no certificate."""
    connections: OrderedDict[ReviewProtocol, None] = field(default_factory=OrderedDict)
    """The connections: first those in the state CLOSING, and then by the time of the last answer.
    """
    read_buffer: memoryview = field(
        default_factory=lambda: memoryview(bytearray(_READ_BUFFER_BYTES))
    )
    """The buffer of the connection that reads. `buffer_updated` follows `get_buffer` at once."""
    now: float = 0.0
    """When the loop began to read in its current iteration, by `time.monotonic`, or 0."""

    def began_reading(self, loop: asyncio.AbstractEventLoop) -> float:
        """Return when the loop began to read, in its current iteration.

        All data that it reads was queued by then, so a review's time in the queue counts from this
        time. `loop.time()` is another time, because uvloop updates it at each call.
        """
        if not self.now:
            self.now = monotonic()
            # The loop runs this callback after it has read from all clients.
            loop.call_soon(self._end)
        return self.now

    def _end(self) -> None:
        self.now = 0.0

    def add(self, connection: ReviewProtocol) -> None:
        """Add a connection. Abort another one if there are too many.

        A connection that receives a body or waits for a look-up is aborted only if all of the older
        half do. Otherwise an attacker with a thousand bodies could lock out new clients.
        """
        limit = self.handler.limits.max_connections
        if len(self.connections) >= limit:
            older = islice(self.connections, limit // 2 + 1)
            min(older, key=ReviewProtocol.is_deciding)._abort()
        self.connections[connection] = None

    def requests(self) -> int:
        """Return the number of reviews whose head was received and whose answer is not read."""
        return sum(
            found.is_deciding() or found.state is State.WRITING for found in self.connections
        )

    def shutdown(self) -> None:
        """Let all connections end, as the module describes. Each has its own time limit."""
        for connection in list(self.connections):
            connection.shutdown()


class ReviewProtocol(asyncio.BufferedProtocol):
    """A connection."""

    def __init__(self, server: ReviewServer, loop: asyncio.AbstractEventLoop) -> None:
        self.state = State.IDLE
        """Read-only for others."""
        self._server = server
        self._handler = server.handler
        self._limits = server.handler.limits
        self._budget = server.handler.budget
        self._loop = loop

        self._transport: asyncio.Transport
        self._ending: asyncio.Handle | asyncio.Task[None] | None = None
        """What ends the state: its time limit, or a look-up. The next state cancels it."""
        self._paused = False
        """Whether unread answers fill the write buffer."""
        self._last = False
        """Whether the connection closes after the current request."""

        self._began_at = monotonic()
        """When the last request began, by `time.monotonic`, for its deadline and the idle timeout.
        Before the first one, when the connection began."""
        self._buffer = b""
        """The received part of a head."""
        self._head = RequestHead()
        """The head of the current request."""
        self._review: ReviewBody | None = None
        """The body of a review in the state RECEIVING."""
        self._held_bytes = 0
        """The length of an incomplete head, of a review in the state LOOKING_UP, or of the answer
        in the state WRITING. It counts against the memory budget."""

    def is_deciding(self) -> bool:
        """Return whether the body of a review is being received, or waits for a look-up."""
        return self._review is not None or self.state is State.LOOKING_UP

    # Events of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the idle timeout. Abort another connection if there are too many."""
        self._transport = transport
        transport.set_write_buffer_limits(self._limits.write_high_water_bytes)
        self._enter(State.IDLE, self._limits.idle_timeout_seconds)
        self._server.add(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer for the next data.

        For a protocol without it, uvloop allocates 256 KiB for each read from a TLS connection.
        """
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Process the data in the buffer. A request in one piece is answered at once."""
        received = self._server.read_buffer[:nbytes]
        now = self._server.now or self._server.began_reading(self._loop)
        if self._review is not None:
            self._read_body(self._review, received, now)
            return
        data = bytes(received)
        if self.state is _IDLE:
            data = data.lstrip(b"\r\n")
            if data:
                self._began_at = now
                self._read_head(data, now)
        elif self.state is State.RECEIVING:
            self._read_head(data, now)
        elif self.state is not State.CLOSING:
            self._note_behind(data)

    def pause_writing(self) -> None:
        """Make the next answer wait until the client reads."""
        self._paused = True

    def resume_writing(self) -> None:
        """Continue after the answer that was read."""
        self._paused = False
        if self.state is State.WRITING:
            self._continue()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Cancel the timer or the look-up, and free all memory."""
        self._enter(State.CLOSING)
        self._server.connections.pop(self, None)
        # uvloop's TLS protocol keeps methods of this one, so the transport would be in a cycle,
        # which only the garbage collector frees.
        del self._transport

    # Events of the server

    def shutdown(self) -> None:
        """Let the connection end when no request is in progress."""
        self._last = True
        if self.state is State.IDLE:
            # A review may be on its way, so the server must not close the connection.
            self._enter(State.IDLE, self._limits.shutdown_idle_timeout_seconds)
            self._transport.write(_CONTINUE)

    def _on_timeout(self) -> None:
        """Do what the table of the module says for the time limit of the state."""
        idle_seconds = 0.0 if self._last else self._limits.idle_timeout_seconds
        remaining_seconds = self._began_at + idle_seconds - monotonic()
        if self.state in (State.WRITING, State.CLOSING):
            self._transport.abort()
        elif self._review is not None:
            # The time spent waiting for the client must not count as time in the queue.
            self._answer_body(self._review, self._server.began_reading(self._loop))
        elif self.state is State.IDLE and remaining_seconds > 0:
            # Reviews do not restart the timer, because that takes longer than to find a review.
            self._enter(State.IDLE, remaining_seconds)
        else:
            self._close(self._limits.close_timeout_seconds)

    # States

    def _enter(self, state: State, seconds: float | None = None, held_bytes: int = 0) -> None:
        """Change the state, with its time limit and what it holds. Free what the last one held."""
        self.state = state
        self._hold(held_bytes)
        if self._ending is not None:
            self._ending.cancel()
        # The frames of a look-up's CancelledError hold this object and the review.
        self._ending = None
        if seconds is not None:
            self._ending = self._loop.call_later(seconds, self._on_timeout)

    def _continue(self) -> None:
        """Enter the state that follows an answer."""
        if self._last:
            # The client has this time to read the answer.
            self._close(self._limits.write_timeout_seconds)
        else:
            self._enter(State.IDLE, self._limits.idle_timeout_seconds)

    def _close(self, seconds: float) -> None:
        """Close the connection. Abort it if the client does not close its side in time."""
        self._enter(State.CLOSING, seconds)
        connections = self._server.connections
        connections.move_to_end(self, last=False)
        closing = list(takewhile(lambda found: found.state is State.CLOSING, connections))
        if len(closing) > self._limits.max_closing:
            closing[-1]._abort()
        self._transport.close()

    def _abort(self) -> None:
        """End the connection now. The transport reports that it is lost later."""
        self._enter(State.CLOSING)
        self._server.connections.pop(self, None)
        self._transport.abort()

    def _hold(self, count: int = 0, head: bytes = b"") -> None:
        """Discard what was received. Count other bytes, if any, against the memory budget."""
        self._budget.used_bytes += count - self._held_bytes
        self._held_bytes, self._buffer = count, head
        if self._review is not None:
            self._review.release()
            self._review = None

    # Requests

    def _read_head(self, data: bytes, now: float) -> None:
        """Begin the request if its head is complete. Else wait for the rest of the head."""
        limit, before = self._limits.max_header_bytes, len(self._buffer)
        received = self._buffer + data
        end = received.find(HEAD_END, max(before - _END_BYTES + 1, 0), limit) + _END_BYTES
        if end >= _END_BYTES:
            self._begin_request(read_head(received[:end]), received[end:], now)
            return
        if self.state is _IDLE:
            self._enter(State.RECEIVING, self._limits.header_timeout_seconds)
        self._hold(len(received), received)
        self._head = RequestHead(is_head=received.startswith(b"HEAD "))
        new_lines = received.count(b"\n", before, limit)
        if new_lines > received.count(b"\r\n", max(before - 1, 0), limit):
            # The client may have ended the head with line feeds, and wait for an answer.
            self._begin_request(invalid_head(received), b"", now)
        elif len(received) > limit:
            self._refuse(Refusal(431, f"The headers are longer than {limit} bytes."))
        elif len(received) > self._limits.guaranteed_body_bytes and self._budget.exhausted:
            self._refuse(Refusal(503, "Other requests occupy the memory."))

    def _begin_request(self, head: RequestHead, body: bytes, received_at: float) -> None:
        """Answer a request, or wait for the rest of its body."""
        self._head = head
        self._last = self._last or head.close
        limit = self._limits.max_body_bytes
        if head.refusal is not None:
            if head.cause:
                client = self._transport.get_extra_info("peername")
                log.debug("request from %s: answered 400: %s", client, head.cause)
            self._refuse(head.refusal)
        elif head.probe:
            self._note_behind(body)
            is_ready = head.probe == b"/livez" or self._server.is_ready()
            self._send(200 if is_ready else 503, _TEXT_TYPE, b"ok" if is_ready else b"not ready")
        elif self._server.needs_certificate and not self._transport.get_extra_info("peercert"):
            self._refuse(NO_CLIENT_CERTIFICATE)
        elif head.length > limit:
            self._refuse(body_too_long(limit))
        elif head.length == len(body) <= GUARANTEED_DECISION_BYTES:
            timing = ReviewTiming(self._began_at, received_at, head.deadline_seconds)
            self._respond(self._handler.answer(body, timing), timing)
        else:
            head_seconds = received_at - self._began_at
            seconds = self._handler.body_timeout(head.deadline_seconds - head_seconds)
            self._enter(State.RECEIVING, seconds - (monotonic() - received_at))
            self._review = ReviewBody(self._budget, self._limits)
            if head.waits and not body:
                self._transport.write(_CONTINUE)
            self._read_body(self._review, body, received_at)

    def _read_body(self, review: ReviewBody, data: bytes | memoryview, received_at: float) -> None:
        """Add data to the body, and answer the review if no more is needed."""
        missing_bytes = self._head.length - review.length
        self._note_behind(bytes(data[missing_bytes:]))
        review.feed(data[:missing_bytes], is_last=len(data) >= missing_bytes)
        if not review.wants_more:
            self._answer_body(review, received_at)

    def _answer_body(self, review: ReviewBody, received_at: float) -> None:
        """Answer a review that arrived in pieces, and may be incomplete."""
        self._last = self._last or not review.complete
        timing = ReviewTiming(self._began_at, received_at, self._head.deadline_seconds)
        self._respond(self._handler.answer_body(review, timing), timing)

    def _note_behind(self, data: bytes) -> None:
        """Discard bytes behind a request. If they are another one, close after the answer."""
        if data.strip(b"\r\n"):
            self._last = True

    # Answers

    def _respond(self, answer: Answer | Refusal, timing: ReviewTiming) -> None:
        """Send the handler's answer to a review, after the look-ups that it needs."""
        if isinstance(answer, Refusal):
            self._refuse(answer)
        elif answer.missing:
            self._enter(State.LOOKING_UP, held_bytes=len(answer.review))
            self._ending = self._loop.create_task(self._look_up(answer, timing))
        else:
            self._send_review(answer.body)

    async def _look_up(self, answer: Answer, timing: ReviewTiming) -> None:
        """Send a better answer after a look-up. To leave the state cancels this task."""
        # A Unix socket has no address.
        client = str((self._transport.get_extra_info("peername") or ("",))[0])
        answer = await self._handler.look_up(answer, timing, client)
        self._send_review(answer.body)

    def _send_review(self, body: bytes) -> None:
        """Send the answer to a review, and continue."""
        if random() < self._limits.goaway_chance:  # noqa: S311
            self._last = True
        self._send(200, _JSON_TYPE, body)

    def _send(self, status: int, content_type: bytes, body: bytes, allow: bytes = b"") -> None:
        """Write an answer, and enter the state that follows it."""
        self._last = self._last or self._handler.drain.started
        head = _response_head(status, content_type, int(time()), self._last, allow)
        answer = b"%b%d\r\n\r\n%b" % (head, len(body), b"" if self._head.is_head else body)
        self._transport.write(answer)
        self._server.connections.move_to_end(self)
        if self._paused:
            self._enter(State.WRITING, self._limits.write_timeout_seconds, len(answer))
        elif self._last or self.state is not _IDLE:
            self._continue()

    def _refuse(self, refusal: Refusal) -> None:
        """Send an HTTP error and close the connection. The rest of the request is discarded."""
        self._last = True
        self._handler.count_refused(refusal.status)
        self._send(refusal.status, _TEXT_TYPE, f"{refusal.text}\n".encode(), refusal.allow)


@lru_cache(maxsize=16)
def _response_head(
    status: int, content_type: bytes, second: int, closes: bool, allow: bytes
) -> bytes:
    """Return a head up to the value of Content-Length, which is the last header."""
    return b"HTTP/1.1 %d %b\r\ndate: %b\r\n%b%bcontent-type: %b\r\ncontent-length: " % (
        status,
        HTTPStatus(status).phrase.encode(),
        formatdate(second, usegmt=True).encode(),
        b"connection: close\r\n" if closes else b"",
        b"allow: %b\r\n" % allow if allow else b"",
        content_type,
    )
