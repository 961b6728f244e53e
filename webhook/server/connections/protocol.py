"""The HTTP/1.1 protocol of a connection on the port of reviews.

It answers reviews and probes, and refuses all other requests, as `request_head` describes. It
exists for two things that uvicorn does not have:

- **Limits for clients.** uvicorn limits neither the time of a request nor the number of its
  headers, nor the memory of connections. An attacker could keep the API server's reviews waiting.
- **A shutdown that loses no review.** See below.

States. Each has one timer or none. The write timer runs exactly while writing is paused.

| state     | received data                        | other event              | time limit, then |
|-----------|--------------------------------------|--------------------------|------------------|
| IDLE      | request: answer it; else RECEIVING   | shutdown: 100 Continue   | idle: close      |
| RECEIVING | head: answer, or refuse;             | memory exhausted: refuse | header: close;   |
|           | body: answer, or WAITING             | the head, or WAITING     | body: answer     |
| WAITING   | discard, and close after the answer  | answer, or client reads: | the handler's;   |
|           |                                      | write it                 | write: abort     |
| CLOSING   | discard                              |                          | close: abort     |

Nothing leads out of CLOSING. An answer leads to IDLE, or to CLOSING if it is the last one: after a
shutdown, at the request of the client, after an error, if the body is incomplete, and if there are
bytes behind the request. API servers do not pipeline. In all states, a lost connection cancels
timers and the task, and frees all memory.

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
from enum import Enum, auto
from itertools import takewhile
from random import random
from time import monotonic

from webhook.core.admission.handler import Answer
from webhook.server.connections.request_head import HEAD_END, RequestHead, read_head
from webhook.server.connections.server_clock import ServerClock, response_head
from webhook.server.reviews.answer import JSON_TYPE, TEXT_TYPE, Refusal
from webhook.server.reviews.body import ReviewBody
from webhook.server.reviews.client_certs import NO_CLIENT_CERTIFICATE
from webhook.server.reviews.handler import (
    GUARANTEED_DECISION_BYTES,
    ReviewHandler,
    ReviewTiming,
)

log = logging.getLogger(__name__)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Makes the client close an idle connection, and leaves a request on its way unharmed. A final
response such as 408 would be taken for the answer to that request."""
_SHUTDOWN_POLL_SECONDS = 0.05
_READ_BUFFER_BYTES = 256 * 1024


class State(Enum):
    """The state of a connection. The table of the module shows the events and time limits."""

    IDLE = auto()
    """No request has begun."""
    RECEIVING = auto()
    """The head of a request or the body of a review is incomplete."""
    WAITING = auto()
    """A review waits for a look-up, or the client has to read its answer."""
    CLOSING = auto()
    """The transport is closed."""


_IDLE = State.IDLE
_NO_HEAD = RequestHead()


@dataclass(frozen=True, slots=True)
class ReviewServer:
    """The objects that all connections of a server share."""

    handler: ReviewHandler
    is_ready: Callable[[], bool]
    """Returns whether the answer to the readiness probe is `ok`."""
    needs_certificate: bool = False
    """Whether /mutate refuses clients that presented no certificate."""
    clock: ServerClock = field(default_factory=ServerClock)
    connections: OrderedDict[ReviewProtocol, None] = field(default_factory=OrderedDict)
    """The connections: first those in the state CLOSING, and then by the time of the last answer.
    The first one is aborted if there are too many."""
    read_buffer: memoryview = field(
        default_factory=lambda: memoryview(bytearray(_READ_BUFFER_BYTES))
    )
    """The buffer of the connection that reads. `buffer_updated` follows `get_buffer` at once."""

    def requests(self) -> int:
        """Return the number of reviews whose head was received and whose answer is not read."""
        return sum(each.has_review for each in self.connections)

    async def shutdown(self) -> None:
        """Let all connections end, as the module describes. Return when none is left."""
        for connection in list(self.connections):
            connection.shutdown()
        while self.connections:  # noqa: ASYNC110 (each has its own time limit)
            await asyncio.sleep(_SHUTDOWN_POLL_SECONDS)


class ReviewProtocol(asyncio.BufferedProtocol):
    """A connection."""

    def __init__(self, server: ReviewServer, loop: asyncio.AbstractEventLoop) -> None:
        self.state = State.IDLE
        """Read-only for others."""
        self._server = server
        self._handler = server.handler
        self._limits = server.handler.limits
        self._budget = server.handler.budget
        self._clock = server.clock
        self._loop = loop

        self._transport: asyncio.Transport
        self._serves_reviews = False
        """Whether the client presented a certificate, or needs none."""
        self._timer: asyncio.Handle | None = None
        """The time limit of the state."""
        self._write_timer: asyncio.Handle | None = None
        """Aborts the connection of a client that does not read. It runs while writing is paused."""
        self._last = False
        """Whether the connection closes after the current request."""

        self._received_at = 0.0
        """When the latest data was received, by `time.monotonic`."""
        self._buffer = bytearray()
        """The received part of a head. It counts against the memory budget."""
        self._head = _NO_HEAD
        """The head of the current review."""
        self._missing_bytes = 0
        """The number of bytes of the current review that have not been received."""
        self._review: ReviewBody | None = None
        """The body of a review in the state RECEIVING."""
        self._task: asyncio.Task[Answer] | None = None
        """The task that waits for the look-ups of a review."""
        self._held_bytes = 0
        """The length of the review or of the answer in the state WAITING. It counts against the
        memory budget."""

    @property
    def has_review(self) -> bool:
        """Whether a review is being received or answered."""
        return self._review is not None or self.state is State.WAITING

    # Events of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the idle timeout. Abort another connection if there are too many."""
        self._transport = transport
        transport.set_write_buffer_limits(self._limits.write_high_water_bytes)
        certificate = transport.get_extra_info("peercert")
        self._serves_reviews = bool(certificate) or not self._server.needs_certificate
        self._received_at = monotonic()
        self._enter(State.IDLE, self._limits.idle_timeout_seconds)
        connections = self._server.connections
        if len(connections) >= self._limits.max_connections:
            # If possible, abort one that waits for its client, and not one for which it waits.
            waits_for_client = (found for found in connections if found._task is None)
            next(waits_for_client, next(iter(connections)))._abort()
        connections[self] = None

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer for the next data.

        For a protocol without it, uvloop allocates 256 KiB for each read from a TLS connection.
        """
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Process the data in the buffer."""
        self.data_received(bytes(self._server.read_buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Process received data. A request in one piece is answered before this returns."""
        now = self._clock.now or self._clock.start(self._loop)
        if self.state is _IDLE:
            data = data.lstrip(b"\r\n")
            if not data:
                return
        self._received_at = now
        end = data.find(HEAD_END, 0, self._limits.max_header_bytes) + len(HEAD_END)
        if self.state is _IDLE and end >= len(HEAD_END):
            self._begin_request(read_head(data[:end]), data[end:])
        elif self.state is State.WAITING:
            self._note_behind(data)
        elif self.state is not State.CLOSING:
            if self._review is None:
                self._read_head(data)
            else:
                self._read_body(data)

    def pause_writing(self) -> None:
        """Start the write timeout, because unread answers occupy memory."""
        seconds = self._limits.write_timeout_seconds
        self._write_timer = self._loop.call_later(seconds, self._transport.abort)

    def resume_writing(self) -> None:
        """Cancel the write timeout, and continue after the answer that was read."""
        self._cancel_write_timer()
        if self.state is State.WAITING and self._task is None:
            self._continue()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Cancel all timers and the task, and free all memory."""
        self._enter(State.CLOSING)
        self._cancel_write_timer()
        self._server.connections.pop(self, None)
        self._free()
        if self._task is not None:
            self._task.cancel()
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
        remaining_seconds = self._received_at + idle_seconds - monotonic()
        if self.state is State.CLOSING:
            self._transport.abort()
        elif self._review is not None:
            # The time spent waiting for the client must not count as time in the queue.
            self._received_at = self._clock.now or self._clock.start(self._loop)
            self._answer_body(self._review)
        elif self.state is State.IDLE and remaining_seconds > 0:
            # Reviews do not restart the timer, because that takes longer than to find a review.
            self._enter(State.IDLE, remaining_seconds)
        else:
            self._close(self._limits.close_timeout_seconds)

    # States

    def _enter(self, state: State, seconds: float | None = None) -> None:
        """Change the state, with its time limit."""
        self.state = state
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._on_timeout)

    def _wait(self, held_bytes: int) -> None:
        """Enter the state WAITING, with the length of what is kept meanwhile."""
        self._free()
        self._held_bytes = held_bytes
        self._budget.used_bytes += held_bytes
        self._enter(State.WAITING)

    def _continue(self) -> None:
        """Enter the state that follows an answer."""
        self._free()
        if self._last:
            # The client has this time to read the answer.
            self._close(self._limits.write_timeout_seconds)
        else:
            self._enter(State.IDLE, self._limits.idle_timeout_seconds)

    def _close(self, seconds: float) -> None:
        """Close the connection. Abort it if the client does not close its side in time."""
        self._free()
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

    def _free(self) -> None:
        """Discard what was received, and subtract it from the memory budget."""
        self._budget.used_bytes -= len(self._buffer) + self._held_bytes
        self._buffer.clear()
        self._held_bytes = 0
        if self._review is not None:
            self._review.release()
            self._review = None

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # Requests

    def _read_head(self, data: bytes) -> None:
        """Add data to the head, and begin the request if the head is complete."""
        self._head = _NO_HEAD
        searched_bytes = max(len(self._buffer) - len(HEAD_END) + 1, 0)
        self._buffer += data
        self._budget.used_bytes += len(data)
        end = self._buffer.find(HEAD_END, searched_bytes) + len(HEAD_END)
        is_complete = end >= len(HEAD_END)
        head_bytes = end if is_complete else len(self._buffer)
        limit = self._limits.max_header_bytes
        if head_bytes > limit:
            self._refuse(Refusal(431, f"The headers are longer than {limit} bytes."))
        elif is_complete:
            received = bytes(self._buffer)
            self._free()
            self._begin_request(read_head(received[:end]), received[end:])
        elif head_bytes > self._limits.guaranteed_body_bytes and self._budget.exhausted:
            self._refuse(Refusal(503, "Other requests occupy the memory."))
        elif self.state is not State.RECEIVING:
            self._enter(State.RECEIVING, self._limits.header_timeout_seconds)

    def _begin_request(self, head: RequestHead, body: bytes) -> None:
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
            self._send(200 if is_ready else 503, TEXT_TYPE, b"ok" if is_ready else b"not ready")
        elif not self._serves_reviews:
            self._refuse(NO_CLIENT_CERTIFICATE)
        elif head.length > limit:
            self._refuse(Refusal(413, f"The body is longer than {limit} bytes."))
        elif head.length == len(body) <= GUARANTEED_DECISION_BYTES:
            self._respond(self._handler.answer(body, self._timing()))
        else:
            self._missing_bytes = head.length
            self._review = ReviewBody(self._budget, self._limits)
            queued_seconds = monotonic() - self._received_at
            seconds = self._handler.body_timeout(head.deadline_seconds) - queued_seconds
            self._enter(State.RECEIVING, seconds)
            if head.waits and not body:
                self._transport.write(_CONTINUE)
            self._read_body(body)

    def _read_body(self, data: bytes) -> None:
        """Add data to the body, and answer the review if no more is needed."""
        review = self._review
        assert review is not None  # noqa: S101
        piece = data[: self._missing_bytes]
        self._missing_bytes -= len(piece)
        self._note_behind(data[len(piece) :])
        review.feed(piece)
        if not self._missing_bytes:
            review.finish()
        if not review.wants_more:
            self._answer_body(review)

    def _answer_body(self, review: ReviewBody) -> None:
        """Answer a review that arrived in pieces, and may be incomplete."""
        self._last = self._last or not review.complete
        self._respond(self._handler.answer_body(review, self._timing()))

    def _note_behind(self, data: bytes) -> None:
        """Discard bytes behind a request. If they are another one, close after the answer."""
        if data.strip(b"\r\n"):
            self._last = True

    def _timing(self) -> ReviewTiming:
        return ReviewTiming(self._received_at, self._head.deadline_seconds)

    # Answers

    def _respond(self, answer: Answer | Refusal) -> None:
        """Send the handler's answer to a review, after the look-ups that it needs."""
        if isinstance(answer, Refusal):
            self._refuse(answer)
        elif answer.missing:
            self._wait(len(answer.review))
            # A Unix socket has no address.
            client = str((self._transport.get_extra_info("peername") or ("",))[0])
            found = self._handler.look_up(answer, self._timing(), client)
            self._task = self._loop.create_task(found)
            self._task.add_done_callback(self._on_answer)
        else:
            self._send_review(answer.body)

    def _on_answer(self, task: asyncio.Task[Answer]) -> None:
        """Send the answer of the task, unless the connection or the process ends."""
        self._task = None
        if self.state is State.WAITING and not task.cancelled():
            if not self._clock.now:
                self._clock.start(self._loop)
            self._send_review(task.result().body)

    def _send_review(self, body: bytes) -> None:
        """Send the answer to a review, and continue."""
        if random() < self._limits.goaway_chance:  # noqa: S311
            self._last = True
        if self._last or self._handler.drain.started:
            self._send(200, JSON_TYPE, body)
        else:
            self._write(b"%b%d\r\n\r\n%b" % (self._clock.json_head, len(body), body))

    def _send(self, status: int, content_type: bytes, body: bytes) -> None:
        """Send an answer with any head, and continue."""
        self._last = self._last or self._handler.drain.started
        head = response_head(status, content_type, self._clock.date, close=self._last)
        self._write(b"%b%d\r\n\r\n%b" % (head, len(body), b"" if self._head.is_head else body))

    def _refuse(self, refusal: Refusal) -> None:
        """Send an HTTP error and close the connection. The rest of the request is discarded."""
        self._last = True
        self._handler.count_refused(refusal.status)
        self._send(refusal.status, TEXT_TYPE, f"{refusal.text}\n".encode())

    def _write(self, answer: bytes) -> None:
        """Write an answer, and enter the state that follows it."""
        self._transport.write(answer)
        self._server.connections.move_to_end(self)
        if self._write_timer is not None:
            self._wait(len(answer))  # The client reads slowly.
        elif self._last or self.state is not _IDLE:
            self._continue()
