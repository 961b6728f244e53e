"""The HTTP/1.1 protocol of a connection: it answers reviews, and hands all others to uvicorn.

This protocol exists for two things that uvicorn does not have:

- **Limits for clients.** uvicorn limits neither the time of a request nor its headers, nor the
  number and the memory of connections. An attacker could keep the API server's reviews waiting.
- **A shutdown that loses no review.** See below.

It also answers twice as many reviews as stock uvicorn, which matters less: a review takes a small
part of the time of a pod's creation.

uvicorn constructs a ReviewProtocol for each connection. It passes reviews to the ReviewHandler,
which is also behind the FastAPI route /mutate. Once the head of any other request is complete, it
hands the connection over to uvicorn for good: `uvicorn_connection` describes what then applies,
and `request_head` which requests these are.

States. Each has one timer or none. The write timer runs exactly while writing is paused.

| state     | received data                       | other event              | time limit, then |
|-----------|-------------------------------------|--------------------------|------------------|
| IDLE      | review: answer it; else RECEIVING   | shutdown: 100 Continue   | idle: close      |
| RECEIVING | head: review, refuse, or hand over; | memory exhausted: refuse | header: close;   |
|           | body: answer, or WAITING            | the head, or WAITING     | body: WAITING    |
| WAITING   | discard, and close after the answer | answer, or client reads: | the handler's;   |
|           |                                     | write it                 | write: abort     |
| CLOSING   | discard                             |                          | close: abort     |

Nothing leads out of CLOSING. An answer leads to IDLE, or to CLOSING if it is the last one: after a
shutdown, at the request of the client, after an error, if the body is incomplete, and if there are
bytes behind the review. API servers do not pipeline. In all states, a lost connection cancels
timers and the task, and frees all memory. A CLOSING transport still reads and discards the rest of
a body: see `uvicorn_connection`.

Shutdown. If the server closed an idle connection, a review on its way would be lost: net/http does
not repeat a POST, and the API server reports EOF. Therefore the server lets the client close the
connection. It sends `100 Continue` and waits, for at most the shutdown idle timeout. A client
without a request in progress closes a connection on which data arrives (RFC 9112, 9.2). A client
with a request in progress ignores an informational response (RFC 9110, 15.2), and gets its answer.
In net/http both cases exclude each other (`readLoop` and `roundTrip` hold the same lock).

This is all that is used of uvicorn beyond its settings. test_uvicorn_contract.py tests it:

- `http=` of Config takes a callable with the keywords `config`, `server_state`, `app_state` and
  `_loop`.
- HttpToolsProtocol has the same keywords, and is an asyncio.Protocol. It closes its transport after
  an answer with `Connection: close`.
- `app_state` becomes the `state` of ASGI scopes.
- `server_state.connections` is a set. At exit, uvicorn calls `shutdown()` of each member, and waits
  until the set is empty.
- `server_state.tasks` is a set. At exit, uvicorn waits for its tasks.
- `Server.serve`, `Server.should_exit`, `Server.force_exit` (in `run`). Before `serve` first waits,
  it sets its signal handlers, which those of `run` then replace. A forced exit leaves out
  `Server.lifespan.shutdown()`, which waits until the lifespan has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from random import random
from time import monotonic
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from webhook.server.connections.client_address import client_address
from webhook.server.connections.request_head import (
    HEAD_END,
    INVALID_HEAD,
    MAX_CACHED_HEAD_BYTES,
    HeadParser,
    RequestHead,
    cached_head,
)
from webhook.server.connections.server_clock import ServerClock, response_head
from webhook.server.connections.uvicorn_connection import Places, UvicornConnection
from webhook.server.drain import Drain
from webhook.server.limits import DEFAULT_LIMITS, Limits
from webhook.server.reviews.body import ReviewBody
from webhook.server.reviews.client_certs import CLIENT_CERTIFICATE_KEY
from webhook.server.reviews.handler import (
    GUARANTEED_DECISION_BYTES,
    RECEIVED_AT_KEY,
    ReviewHandler,
    ReviewTiming,
)
from webhook.server.reviews.http_answer import JSON_TYPE, PIECE_BYTES, TEXT_TYPE, HttpAnswer
from webhook.server.reviews.load_shedding import InFlight, MemoryBudget

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

log = logging.getLogger(__name__)

_CLOSE_IF_IDLE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Makes the client close an idle connection, and leaves a request on its way unharmed. A final
response such as 408 would be taken for the answer to that request."""


class State(Enum):
    """The state of a connection. The table of the module shows the events and time limits."""

    IDLE = auto()
    """No request has begun."""
    RECEIVING = auto()
    """The head of a request or the body of a review is incomplete."""
    WAITING = auto()
    """A task of `ReviewHandler.handle` works on a review, or the client has to read before its
    answer can be written."""
    CLOSING = auto()
    """The transport is closed, or belongs to another protocol."""


_IDLE = State.IDLE


@dataclass(frozen=True, slots=True)
class ReviewServer:
    """The objects that all connections of a server share."""

    handler: ReviewHandler
    budget: MemoryBudget
    in_flight: InFlight
    drain: Drain
    needs_certificate: bool
    """Whether /mutate refuses clients that presented no certificate. The route answers them."""
    limits: Limits = DEFAULT_LIMITS
    count_refused: Callable[[int], None] = lambda _status: None
    """Called with the status of each HTTP error that the protocol itself answers."""
    clock: ServerClock = field(default_factory=ServerClock)
    connections: OrderedDict[ReviewProtocol, None] = field(default_factory=OrderedDict)
    """The open connections that are not handed over, ordered by the time of their last answer."""
    closing: OrderedDict[ReviewProtocol, None] = field(default_factory=OrderedDict)
    """The connections that the server has closed and the client has not, the oldest one first."""
    places: Places = field(default_factory=Places)
    """The connections that are handed over."""


class ReviewProtocol(asyncio.Protocol):
    """A connection. The arguments except `server` are those that uvicorn gives to protocols."""

    def __init__(
        self,
        *,
        server: ReviewServer,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.state = State.IDLE
        """Read-only for others."""
        self._server = server
        self._limits = server.limits
        self._budget = server.budget
        self._clock = server.clock
        self._drain = server.drain
        self._connections = server.connections
        self._handle_now = server.handler.handle_now
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()

        self._transport: asyncio.Transport
        self._serves_reviews = False
        """Whether the client presented a certificate, or needs none."""
        self._timer: asyncio.Handle | None = None
        """The time limit of the state."""
        self._write_timer: asyncio.Handle | None = None
        """The write timeout, which aborts the connection of a client that does not read."""
        self._write_paused = False
        self._last = False
        """Whether the connection closes after the current request."""

        self._received_at = 0.0
        """When the latest data was received, by `time.monotonic`."""
        self._buffer = bytearray()
        """The received part of a head. It counts against the memory budget."""
        self._parser: HeadParser | None = None
        self._parsed_bytes = 0
        """The number of bytes in the buffer that the parser has received."""
        self._missing_bytes = 0
        """The number of bytes of the current review that have not been received."""
        self._deadline_seconds = 0.0
        """The deadline of the current review."""
        self._review: ReviewBody | None = None
        """The body of a review in the states RECEIVING and WAITING."""
        self._task: asyncio.Task[HttpAnswer] | None = None
        """The task that answers the review."""
        self._unsent = b""
        """An answer that is not completely written. It counts against the memory budget."""
        self._sent_bytes = 0
        self._counted = False, False
        """What this connection adds to `InFlight.requests` and to `InFlight.reviews`."""

    # Events of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the idle timeout. Close another connection if there are too many."""
        self._transport = transport
        transport.set_write_buffer_limits(self._limits.write_high_water_bytes)
        certificate = transport.get_extra_info("peercert")
        self._serves_reviews = bool(certificate) or not self._server.needs_certificate
        self._received_at = monotonic()
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        self._connections[self] = None
        self._enter(State.IDLE, self._limits.idle_timeout_seconds)
        if len(self._connections) > self._limits.max_connections:
            self._close_oldest()

    def data_received(self, data: bytes) -> None:
        """Process received data. A review in one piece is answered before this returns."""
        received_at = self._clock.now or self._clock.start(self._loop)
        if self.state is _IDLE:
            end = data.find(HEAD_END, 0, MAX_CACHED_HEAD_BYTES) + 4
            if end > 3:  # It was found.
                head = cached_head(data[:end])
                if head.is_plain and end + head.length == len(data) and self._serves_reviews:
                    self._received_at = received_at
                    self._answer_at_once(data[end:], head.deadline_seconds)
                    return
            data = data.lstrip(b"\r\n")
            if not data:
                return
        self._received_at = received_at
        if self.state is State.WAITING:
            self._note_behind(data)
        elif self.state is not State.CLOSING:
            if self._review is None:
                self._read_head(data)
            else:
                self._read_body(data)

    def pause_writing(self) -> None:
        """Start the write timeout, because unread answers occupy memory."""
        self._write_paused = True
        self._write_timer = self._loop.call_later(
            self._limits.write_timeout_seconds, self._transport.abort
        )

    def resume_writing(self) -> None:
        """Cancel the write timeout, and write more."""
        self._write_paused = False
        self._cancel_write_timer()
        if self._unsent:
            self._write_unsent()
            self._continue()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Cancel all timers and the task, and free all memory."""
        self._leave()
        self._server.closing.pop(self, None)
        if self._task is not None:
            self._task.cancel()
        else:
            self._release_review()

    # Events of the server

    def shutdown(self) -> None:
        """Let the connection end when no request is in progress. uvicorn calls this at its exit."""
        self._last = True
        if self.state is State.IDLE:
            # A review may be on its way, so the server must not close the connection.
            self._enter(State.IDLE, self._limits.shutdown_idle_timeout_seconds)
            self._transport.write(_CLOSE_IF_IDLE)

    def _on_timeout(self) -> None:
        """Do what the table of the module says for the time limit of the state."""
        if self.state is State.CLOSING:
            self._transport.abort()
        elif self._review is not None:
            # The time spent waiting for the client must not count as time in the queue.
            self._received_at = monotonic()
            self._wait_for_answer()
        elif self.state is State.IDLE and (remaining_seconds := self._remaining_idle_seconds()) > 0:
            # Reviews do not restart the timer, because that takes longer than to find a review.
            self._enter(State.IDLE, remaining_seconds)
        else:
            self._close(self._limits.close_timeout_seconds)

    def _remaining_idle_seconds(self) -> float:
        if self._last:
            return 0.0
        return self._received_at + self._limits.idle_timeout_seconds - monotonic()

    # States

    def _enter(self, state: State, seconds: float | None = None) -> None:
        """Change the state, with its time limit."""
        self.state = state
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._on_timeout)
        is_waiting = state is State.WAITING
        has_review = is_waiting or (state is State.RECEIVING and self._review is not None)
        # The handler counts the reviews that it works on.
        counted = has_review, is_waiting and self._task is None
        if counted != self._counted:
            in_flight = self._server.in_flight
            in_flight.requests += counted[0] - self._counted[0]
            in_flight.reviews += counted[1] - self._counted[1]
            self._counted = counted

    def _continue(self) -> None:
        """Enter the state that follows an answer."""
        if self._unsent:
            self._enter(State.WAITING)
        elif self._last:
            # The client has this time to read the answer.
            self._close(self._limits.write_timeout_seconds)
        else:
            self._enter(State.IDLE, self._limits.idle_timeout_seconds)

    def _close(self, seconds: float) -> None:
        """Close the connection. Abort it if the client does not close its side in time.

        The rest of an answer that the client reads too slowly is discarded.
        """
        self._connections.pop(self, None)
        self._drop_buffer()
        self._release_answer()
        self._enter(State.CLOSING, seconds)
        closing = self._server.closing
        closing[self] = None
        if len(closing) > self._limits.max_closing:
            closing.popitem(last=False)[0]._transport.abort()
        self._transport.close()

    def _close_oldest(self) -> None:
        """Close the connection whose last answer is the oldest, but not this new one.

        If possible, close one that waits for its client, and not one that its client waits for.
        """
        others = [found for found in self._connections if found is not self]
        idle_or_slow = (found for found in others if found._task is None)
        next(idle_or_slow, others[0])._close(self._limits.close_timeout_seconds)

    def _leave(self) -> None:
        """End the part of this protocol in the connection."""
        self._enter(State.CLOSING)
        self._cancel_write_timer()
        self._server_state.connections.discard(self)
        self._connections.pop(self, None)
        self._drop_buffer()
        self._release_answer()

    # Heads

    def _read_head(self, data: bytes) -> None:
        """Add data to the head, and parse the head as far as it was received."""
        self._buffer += data
        self._budget.used_bytes += len(data)
        parsed = self._parsed_bytes
        end = self._buffer.find(HEAD_END, max(parsed - len(HEAD_END) + 1, 0)) + len(HEAD_END)
        is_complete = end >= len(HEAD_END)
        received_bytes = end if is_complete else len(self._buffer)
        limit = self._limits.max_header_bytes
        if received_bytes > limit:
            self._refuse(400, _too_long(limit))
            return
        guaranteed_bytes = self._limits.guaranteed_body_bytes
        if not is_complete and received_bytes > guaranteed_bytes and self._budget.exhausted:
            self._refuse(503, "Other requests occupy the memory.")
            return
        if is_complete and not parsed and end <= MAX_CACHED_HEAD_BYTES:
            head: RequestHead | None = cached_head(bytes(self._buffer[:end]))
        else:
            self._parser = self._parser or HeadParser()
            self._parser.feed(bytes(self._buffer[parsed:received_bytes]))
            head = self._parser.head()
        if head is None and not is_complete:
            self._parsed_bytes = received_bytes
            if self.state is not State.RECEIVING:
                self._enter(State.RECEIVING, self._limits.header_timeout_seconds)
            return
        head = head or INVALID_HEAD
        text, rest = bytes(self._buffer[:received_bytes]), bytes(self._buffer[received_bytes:])
        self._drop_buffer()
        if head.error is not None:
            client, cause = self._transport.get_extra_info("peername"), head.cause or head.error
            log.debug("request from %s: answered 400: %s", client, cause)
            self._refuse(400, head.error)
        elif head.is_review and self._serves_reviews:
            self._begin_review(head, rest)
        else:
            self._hand_over(head, text, rest)

    def _hand_over(self, head: RequestHead, text: bytes, rest: bytes) -> None:
        """Give the connection to uvicorn's protocol for good, unless a limit is reached."""
        limits = self._limits
        if len(text) > limits.max_handed_over_header_bytes:
            self._refuse(400, _too_long(limits.max_handed_over_header_bytes))
            return
        if not self._server.places.take(self._transport, limits, is_probe=head.is_probe):
            self._refuse(503, "Too many requests are in progress.")
            return
        self._leave()
        app_state = self._app_state | {RECEIVED_AT_KEY: self._received_at}
        certificate = self._transport.get_extra_info("peercert")
        if certificate:
            app_state[CLIENT_CERTIFICATE_KEY] = certificate
        inner = HttpToolsProtocol(
            config=self._config,
            server_state=self._server_state,
            app_state=app_state,
            _loop=self._loop,
        )
        connection = UvicornConnection(
            self._transport,
            inner,
            head,
            places=self._server.places,
            budget=self._budget,
            limits=limits,
            loop=self._loop,
        )
        self._transport.set_protocol(connection)
        connection.begin(text, write_paused=self._write_paused)
        connection.data_received(rest)

    # Reviews

    def _begin_review(self, head: RequestHead, body: bytes) -> None:
        """Answer a review, or wait for the rest of its body."""
        self._last = self._last or head.close
        self._deadline_seconds = head.deadline_seconds
        self._missing_bytes = head.length
        self._review = ReviewBody(self._budget, self._limits)
        queued_seconds = monotonic() - self._received_at
        body_seconds = self._server.handler.body_timeout(head.deadline_seconds) - queued_seconds
        self._enter(State.RECEIVING, body_seconds)
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
        if review.wants_more:
            return
        if review.complete and review.length <= GUARANTEED_DECISION_BYTES:
            body = review.data
            self._release_review()
            self._answer_at_once(body, self._deadline_seconds)
        else:
            self._wait_for_answer()

    def _note_behind(self, data: bytes) -> None:
        """Discard bytes behind a review. If they are a request, close after the answer."""
        if data.strip(b"\r\n"):
            self._last = True

    def _answer_at_once(self, body: bytes, deadline_seconds: float) -> None:
        """Answer a complete review. If it needs a look-up, wait for it."""
        answer = self._handle_now(body, ReviewTiming(self._received_at, deadline_seconds))
        if answer is not None:
            self._send_review(answer)
            return
        self._deadline_seconds = deadline_seconds
        self._review = ReviewBody(self._budget, self._limits)
        self._review.feed(body)
        self._review.finish()
        self._wait_for_answer()

    def _wait_for_answer(self) -> None:
        """Start a task that answers the review, which may be incomplete."""
        assert self._review is not None  # noqa: S101
        self._last = self._last or not self._review.complete
        timing = ReviewTiming(self._received_at, self._deadline_seconds)
        answer = self._server.handler.handle(self._review, timing, client_address(self._transport))
        self._task = self._loop.create_task(answer)
        self._server_state.tasks.add(self._task)  # type: ignore[arg-type]
        self._task.add_done_callback(self._on_answer)
        self._enter(State.WAITING)

    def _on_answer(self, task: asyncio.Task[HttpAnswer]) -> None:
        """Send the answer of the task, unless the connection is lost."""
        self._server_state.tasks.discard(task)
        self._task = None
        # The client may read slowly. It must not occupy review and answer at the same time.
        self._release_review()
        if self.state is not State.WAITING:
            return
        if not self._clock.now:
            self._clock.start(self._loop)
        if task.cancelled():
            # uvicorn cancels tasks that take too long at its exit.
            self._transport.abort()
        elif (error := task.exception()) is not None:
            log.error("internal error: a review was not answered", exc_info=error)
            self._refuse(500, "Internal Server Error")
        else:
            answer = task.result()
            self._last = self._last or answer.close
            if answer.status == HTTPStatus.OK:
                self._send_review(answer.body)
            else:
                self._send(answer.status, answer.content_type, answer.body)

    # Answers

    def _send_review(self, body: bytes) -> None:
        """Send the answer to a review, usually in one piece, and continue."""
        if self._drain.started or random() < self._limits.goaway_chance:  # noqa: S311
            self._last = True
        if self._last or self._write_paused or len(body) > PIECE_BYTES:
            self._send(200, JSON_TYPE, body)
            return
        self._transport.write(b"%b%d\r\n\r\n%b" % (self._clock.json_head, len(body), body))
        self._connections.move_to_end(self)
        if self.state is not _IDLE:
            self._continue()

    def _send(self, status: int, content_type: bytes, body: bytes) -> None:
        """Send an answer in pieces as far as the client reads it, and continue."""
        self._last = self._last or self._drain.started
        head = response_head(status, content_type, self._clock.date, close=self._last)
        self._unsent = b"%b%d\r\n\r\n%b" % (head, len(body), body)
        self._budget.used_bytes += len(self._unsent)
        self._connections.move_to_end(self)
        self._write_unsent()
        self._continue()

    def _write_unsent(self) -> None:
        """Write the answer as far as the client reads it."""
        while self._sent_bytes < len(self._unsent) and not self._write_paused:
            end = self._sent_bytes + PIECE_BYTES
            self._transport.write(self._unsent[self._sent_bytes : end])
            self._sent_bytes = end
        if self._sent_bytes >= len(self._unsent):
            self._release_answer()

    def _refuse(self, status: int, message: str) -> None:
        """Send an HTTP error and close the connection. The rest of the request is discarded."""
        self._last = True
        self._drop_buffer()
        self._server.count_refused(status)
        self._send(status, TEXT_TYPE, message.encode())

    # Memory

    def _drop_buffer(self) -> None:
        self._budget.used_bytes -= len(self._buffer)
        self._buffer.clear()
        self._parser, self._parsed_bytes = None, 0

    def _release_answer(self) -> None:
        self._budget.used_bytes -= len(self._unsent)
        self._unsent, self._sent_bytes = b"", 0

    def _release_review(self) -> None:
        if self._review is not None:
            self._review.release()
            self._review = None

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def _too_long(limit_bytes: int) -> str:
    return f"The headers are longer than {limit_bytes} bytes."
