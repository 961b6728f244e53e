"""The HTTP/1.1 protocol of a connection: it answers reviews, and delegates all other requests.

uvicorn constructs a ReviewProtocol for each connection. It finds the requests, and passes reviews
to the ReviewHandler, which is also behind the FastAPI route /mutate. For any other request it
constructs uvicorn's own protocol (the inner protocol), and forwards the bytes of this one request
to it. uvicorn's protocol runs a callback per header, creates a task and an ASGI cycle, and writes
an answer in two parts. For a review, this and the route would take longer than the decision.

States. Each has one timer or none. "Complete" means the head or the body. "Continue" means the
first of these that applies: write what is unsent (WRITING), discard the rest of the body
(DISCARDING), close the connection (CLOSING), begin the next request (PIPELINED), wait (IDLE).

| state      | received data                     | other event               | time limit, then    |
|------------|-----------------------------------|---------------------------|---------------------|
| IDLE       | a review: answer it; else as HEAD | shutdown: 100 Continue    | idle: CLOSING       |
| HEAD       | complete: the framing table       |                           | header: CLOSING     |
| BODY       | complete: answer, or WAITING      | memory exhausted: WAITING | body: WAITING       |
| WAITING    | keep for later                    | answer: continue          | the handler's       |
| WRITING    | keep for later                    | client reads: continue    | write: abort        |
| PIPELINED  | keep for later                    | next iteration: as HEAD   |                     |
| DISCARDING | discard; complete: continue       |                           | drain body: CLOSING |
| DELEGATED  | forward to inner protocol         | it closes: continue       | delegated: abort    |
| CLOSING    | discard                           |                           | close: abort        |

In all states: a lost connection cancels timers and the task, and frees all memory. After a
shutdown, an answer closes the connection. The write timer runs exactly while writing is paused.

Shutdown. If the server closed an idle connection, a review on its way would be lost: net/http does
not repeat a POST, and the API server reports EOF. Therefore the server lets the client close the
connection. It sends `100 Continue` and waits, for at most the shutdown idle timeout. A client
without a request in progress closes a connection on which data arrives (RFC 9112, 9.2). A client
with a request in progress ignores an informational response (RFC 9110, 15.2), and gets its answer.
In net/http both cases exclude each other (`readLoop` and `roundTrip` hold the same lock).

Framing. A head ends at its first empty line. The parser receives nothing else. The request begins
when its head is complete. Empty lines before a head are ignored.

| head                                                                      | action            |
|---------------------------------------------------------------------------|-------------------|
| longer than the limit, or more headers in a delegated request             | 400, discard      |
| refused by httptools; a line feed or carriage return without the other; a | 400, close        |
| continued line; two Content-Lengths, or one with a Transfer-Encoding;     |                   |
| neither HTTP/1.0 nor HTTP/1.1                                             |                   |
| two Host headers, or none with HTTP/1.1 (RFC 9112 demands 400)            | 400, discard body |
| an Upgrade header, or CONNECT (uvicorn would ignore the body, or parse it | 400, discard body |
| as the next request: request smuggling)                                   |                   |
| POST of JSON to /mutate in origin-form, HTTP/1.1, Content-Length of at    | review: exactly   |
| least 1, no Expect; the client presented a certificate if it needs one    | these bytes       |
| all others: Transfer-Encoding, Expect, HTTP/1.0, other targets, methods   | delegate, close   |

A delegated request gets `Connection: close` inserted behind its request line, so that its answer
closes the connection. The inner protocol receives exactly the body, chunked bodies without their
trailer section, and no byte of a later request. It holds at most 64 KiB of a body.

This is all that is used of uvicorn beyond its settings. test_uvicorn_contract.py tests it:

- `http=` of Config takes a callable with the keywords `config`, `server_state`, `app_state` and
  `_loop`.
- HttpToolsProtocol has the same keywords, and is an asyncio.Protocol. Of its transport it uses
  `get_extra_info`, `write`, `pause_reading`, `resume_reading`, `is_closing`, and `close` after an
  answer with `Connection: close`.
- `app_state` becomes the `state` of ASGI scopes.
- `server_state.connections` is a set. At exit, uvicorn calls `shutdown()` of each member, and waits
  until the set is empty.
- `server_state.tasks` is a set. At exit, uvicorn waits for its tasks.
- `Server.serve`, `Server.should_exit`, `Server.force_exit` (in `run`). Before `serve` first waits,
  it sets its signal handlers, which those of `run` then replace.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import Enum, auto
from functools import lru_cache
from http import HTTPStatus
from random import random
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

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
from webhook.server.reviews.request import ADMISSION_PATHS, answer_seconds, is_json

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

log = logging.getLogger(__name__)

HEAD_END = b"\r\n\r\n"
"""The bytes at the end of a head."""
MAX_CACHED_HEAD_BYTES = 1024
"""The results of parsing longer heads are not cached. Heads from an API server have about 200
bytes."""
_CACHED_HEADS = 512

_PAUSED_BYTES = 512 * 1024
"""What uvloop may have received of a connection whose reading is paused. It does not pause reading
from the socket before it has 256 KiB."""
_UNKNOWN_BYTES = sys.maxsize
"""The length of the rest of a body whose end is not known."""

_DECIDING_HEADERS = frozenset(
    {b"content-length", b"content-type", b"expect", b"transfer-encoding", b"upgrade"}
)
_HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Some releases of httptools accept spaces. Other servers read such names differently."""
_INVALID_LINE_END = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]")
"""A line feed or carriage return alone, or a continued line. Some releases of httptools take a
carriage return alone for the end of the head, and other servers do not."""
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]+")
_LEADING_ZEROS = re.compile(rb"\A0+(?=[0-9A-Fa-f])")
_CHUNK_SIZE_BYTES = 20
"""Maximum number of characters that are kept of the line with the size of a chunk. The parser
refuses a size of more than 16 digits behind leading zeros."""

_CLOSE_IF_IDLE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Makes the client close an idle connection, and leaves a request on its way unharmed. A final
response such as 408 would be taken for the answer to that request."""
_HTTP_VERSIONS = ("1.0", "1.1")
"""httptools accepts HTTP/0.9 and HTTP/2.0, too. With them, `Connection: keep-alive` overrides the
`Connection: close` that is inserted into delegated requests."""
_INVALID_ERROR = "Invalid HTTP request received."
"""uvicorn answers an invalid request with the same text."""
_HOST_ERROR = "A request needs exactly one Host header. With HTTP/1.0 it may have none."
_UPGRADE_ERROR = "This server supports HTTP/1.1 only: send no Upgrade header, and no CONNECT."


class State(Enum):
    """The state of a connection. The table of the module shows the events and time limits."""

    IDLE = auto()
    """No request has begun."""
    HEAD = auto()
    """A head is incomplete."""
    BODY = auto()
    """The body of a review is incomplete."""
    WAITING = auto()
    """A task of `ReviewHandler.handle` works on a review."""
    WRITING = auto()
    """The client has to read before more can be written."""
    PIPELINED = auto()
    """The next request begins in the event loop's next iteration, after other connections."""
    DISCARDING = auto()
    """The request is answered, but its body is incomplete. If the server closed the connection now,
    a Go client could fail to write the body, and would then not read the answer."""
    DELEGATED = auto()
    """The inner protocol serves the request."""
    CLOSING = auto()
    """The connection is closed, or the client still has to read the last answer."""


_IDLE = State.IDLE
_IN_PROGRESS = (State.BODY, State.WAITING, State.WRITING)
_BUFFERING = (State.WAITING, State.WRITING, State.PIPELINED)


class RequestHead(NamedTuple):
    """What the head of a request says about the processing of the request."""

    error: str | None = None
    """The text of a 400, if the request is refused."""
    length: int = 0
    """Content-Length, or 0."""
    is_chunked: bool = False
    """Whether there is a Transfer-Encoding instead of a Content-Length."""
    is_review: bool = False
    """Whether the ReviewHandler answers the request. Its length is then at least 1."""
    is_plain: bool = False
    """Whether it is a review that can be answered at once and leaves the connection open."""
    close: bool = False
    """Whether the client asks for the end of the connection."""
    deadline_seconds: float = 0.0
    """The time within which podsettle must answer a review."""


_INVALID_HEAD = RequestHead(error=_INVALID_ERROR)


class HeadParser:
    """An incremental parser for one head."""

    def __init__(self) -> None:
        # The parser refers to the callbacks only, so there is no reference cycle.
        self._callbacks = _ParserCallbacks()
        self._parser = httptools.HttpRequestParser(self._callbacks)
        self._line_end = b""
        """The line feeds and carriage returns at the end of the data so far."""
        self._is_invalid = False
        self._is_upgrade = False

    def feed(self, data: bytes) -> None:
        """Parse a part of the head. The last part ends with the first HEAD_END."""
        lines = self._line_end + data
        self._line_end = lines[len(lines.rstrip(b"\r\n")) :]
        # A line feed can follow a carriage return at the end.
        if _INVALID_LINE_END.search(lines.removesuffix(b"\r")):
            self._is_invalid = True
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_upgrade = True
        except httptools.HttpParserError:
            self._is_invalid = True

    def head(self) -> RequestHead | None:
        """Return the parsed head, or None if it is valid so far, but not complete."""
        found, parser = self._callbacks, self._parser
        if self._is_invalid or found.is_ambiguous:
            return _INVALID_HEAD
        if not found.complete:
            return None
        if parser.get_http_version() not in _HTTP_VERSIONS:
            return _INVALID_HEAD
        headers = found.headers
        is_chunked = b"transfer-encoding" in headers
        digits = headers.get(b"content-length", b"0").strip()
        if (is_chunked and b"content-length" in headers) or not digits.isdigit():
            return _INVALID_HEAD
        length = int(digits)
        if found.host_count != 1 and (found.host_count or parser.get_http_version() == "1.1"):
            return RequestHead(_HOST_ERROR, length, is_chunked)
        if self._is_upgrade or b"upgrade" in headers:
            return RequestHead(_UPGRADE_ERROR, length, is_chunked)
        query = None
        if (
            length
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and b"expect" not in headers
            and is_json(headers.items())
        ):
            query = _admission_query(found.url)
        if query is None:
            return RequestHead(None, length, is_chunked)
        close = not parser.should_keep_alive()
        return RequestHead(
            length=length,
            is_review=True,
            is_plain=length <= GUARANTEED_DECISION_BYTES and not close,
            close=close,
            deadline_seconds=answer_seconds(query),
        )


class _ParserCallbacks:
    """The callbacks of httptools' parser, which store what decides about a request.

    They do not store all headers. A head of 64 KiB can have 16,000, which would occupy 1.5 MiB.
    """

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        """The first header of each name in _DECIDING_HEADERS."""
        self.is_ambiguous = False
        """Whether other servers may read the headers differently."""
        self.host_count = 0
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-length" and name in self.headers:
            self.is_ambiguous = True
        elif name in _DECIDING_HEADERS:
            self.headers.setdefault(name, value)
        elif name == b"host":
            self.host_count += 1
        elif not _HEADER_NAME.fullmatch(name):
            self.is_ambiguous = True

    def on_headers_complete(self) -> None:
        self.complete = True


def _admission_query(target: bytes) -> bytes | None:
    """Return the query of a request target in origin-form, or None if it is not /mutate."""
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserError:
        return None
    if not target.startswith(b"/") or (url.path or b"").decode("latin-1") not in ADMISSION_PATHS:
        return None
    return url.query or b""


def parse_head(head: bytes) -> RequestHead:
    """Parse a complete head, which ends with its first HEAD_END."""
    parser = HeadParser()
    parser.feed(head)
    return parser.head() or _INVALID_HEAD


def invalid_cause(head: bytes) -> str:
    """Return why a head is refused as invalid, for the log."""
    if _INVALID_LINE_END.search(head):
        return "a line end other than CR LF, or a continued line"
    names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:-2]]
    if names.count(b"content-length") > 1:
        return "more than one Content-Length"
    if b"content-length" in names and b"transfer-encoding" in names:
        return "both Content-Length and Transfer-Encoding"
    if not all(map(_HEADER_NAME.fullmatch, names)):
        return "an invalid header name"
    return "no valid HTTP/1.0 or HTTP/1.1"


_cached_head = lru_cache(maxsize=_CACHED_HEADS)(parse_head)
"""Heads from one API server differ only in the Content-Length, so most heads are equal to an
earlier head. To parse a head takes nearly as long as a decision. The key is the whole head."""


class ChunkedBody:
    """Finds the end of a chunked body, so that no byte behind it is forwarded.

    It removes the trailer section, because uvicorn stores trailers without a limit. It does not
    check the syntax. The inner protocol does that.
    """

    def __init__(self) -> None:
        self.complete = False
        """Whether the end was found, or an error that makes the inner protocol answer 400."""
        self._data_bytes = 0
        """The number of following bytes that are data of a chunk, with the line end behind it."""
        self._size = b""
        """The beginning of an incomplete line with the size of a chunk."""

    def take(self, data: bytes) -> bytes:
        """Return the part of `data` that is to be forwarded."""
        position = 0
        while position < len(data) and not self.complete:
            if self._data_bytes:
                step = min(self._data_bytes, len(data) - position)
                self._data_bytes -= step
                position += step
                continue
            end = data.find(b"\n", position) + 1
            line = data[position : end or len(data)]
            position += len(line)
            # A chunk extension has no maximum length, and the parser ignores it.
            self._size = _LEADING_ZEROS.sub(b"", self._size + line)[:_CHUNK_SIZE_BYTES]
            if end:
                size = _CHUNK_SIZE.match(self._size)
                self._size = b""
                self._data_bytes = int(size[0], 16) + len(b"\r\n") if size else 0
                if size is None or self._data_bytes == len(b"\r\n"):
                    self.complete = True
                    return data[:position] + (b"\r\n" if size else b"")
        return data[:position]


class ServerClock:
    """The time of the event loop's current iteration, and the Date header.

    The data that an iteration reads was already queued when the iteration started. So a review's
    time in the queue counts from this start time. `loop.time()` is not the start time, because
    uvloop updates it at each call.
    """

    __slots__ = ("_clock", "_second", "date", "json_head", "now")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._second = -1
        self.now = 0.0
        """The start of the iteration by `time.monotonic`, or 0 if `start` must be called."""
        self.date = b""
        self.json_head = b""
        """The response head of an answer that leaves the connection open."""

    def start(self, loop: asyncio.AbstractEventLoop) -> float:
        """Set and return the start time, and update the Date header each second."""
        self.now = self._clock()
        # The loop runs this callback after it has read from all clients.
        loop.call_soon(self._end)
        second = int(time())
        if second != self._second:
            self._second = second
            self.date = formatdate(second, usegmt=True).encode()
            self.json_head = response_head(200, JSON_TYPE, self.date, close=False)
        return self.now

    def _end(self) -> None:
        self.now = 0.0


def response_head(status: int, content_type: bytes, date: bytes, *, close: bool) -> bytes:
    """Return a head up to the value of Content-Length, which is the last header."""
    return b"HTTP/1.1 %d %b\r\ndate: %b\r\n%bcontent-type: %b\r\ncontent-length: " % (
        status,
        HTTPStatus(status).phrase.encode(),
        date,
        b"connection: close\r\n" if close else b"",
        content_type,
    )


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
    """The open connections, ordered by the time of their last answer."""
    closing: OrderedDict[ReviewProtocol, None] = field(default_factory=OrderedDict)
    """The connections that the server has closed and the client has not, the oldest one first."""
    delegated: set[ReviewProtocol] = field(default_factory=set)
    """The connections whose delegated request has a body."""


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
        """The time limit of the state, or the beginning of a pipelined request."""
        self._write_timer: asyncio.Handle | None = None
        """The write timeout, which aborts the connection of a client that does not read."""
        self._write_paused = False
        self._read_paused = False
        self._last = False
        """Whether the connection closes after the current request."""

        self._received_at = 0.0
        """When the latest data was received, by `time.monotonic`."""
        self._buffer = bytearray()
        """Received bytes that are not processed yet. They count against the memory budget."""
        self._parser: HeadParser | None = None
        self._parsed_bytes = 0
        """The number of bytes in the buffer that the parser has received."""
        self._missing_bytes = 0
        """The number of bytes of the current request's body that have not been received."""
        self._deadline_seconds = 0.0
        """The deadline of the current review."""
        self._review: ReviewBody | None = None
        """The body of a review in the states BODY and WAITING."""
        self._task: asyncio.Task[HttpAnswer] | None = None
        """The task of the state WAITING."""
        self._unsent = b""
        """An answer that is not completely written. It counts against the memory budget."""
        self._sent_bytes = 0

        self._inner: HttpToolsProtocol | None = None
        self._inner_transport: _InnerTransport | None = None
        self._chunks: ChunkedBody | None = None
        """The body of a delegated request, if it is chunked."""

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
                head = _cached_head(data[:end])
                if head.is_plain and end + head.length == len(data) and self._serves_reviews:
                    self._received_at = received_at
                    self._answer_at_once(data[end:], head.deadline_seconds)
                    return
            data = data.lstrip(b"\r\n")
            if not data:
                return
        self._received_at = received_at
        if self.state in (State.IDLE, State.HEAD):
            self._keep(data)
            self._read_head()
        elif self.state is State.BODY:
            self._read_body(data)
        elif self.state is State.DELEGATED:
            self._forward(data)
        elif self.state is not State.CLOSING:
            self._keep_for_later(self._discard(data))
            if self.state is State.DISCARDING and not self._missing_bytes:
                self._continue()

    def eof_received(self) -> None:
        """Pass the event on. The transport then closes itself."""
        if self._inner is not None:
            self._inner.eof_received()

    def pause_writing(self) -> None:
        """Start the write timeout, because unread answers occupy memory."""
        self._write_paused = True
        self._write_timer = self._loop.call_later(
            self._limits.write_timeout_seconds, self._transport.abort
        )
        if self._inner is not None:
            self._inner.pause_writing()
        elif self.state in (State.IDLE, State.PIPELINED):
            self._enter(State.WRITING)

    def resume_writing(self) -> None:
        """Cancel the write timeout, and write more."""
        self._write_paused = False
        self._cancel_write_timer()
        if self._inner is not None:
            self._inner.resume_writing()
        elif self.state is State.WRITING:
            self._write_unsent()
            self._continue()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers and the task, and free all memory."""
        if self._read_paused:
            self._read_paused = False
            self._budget.used_bytes -= _PAUSED_BYTES
        self._enter(State.CLOSING)
        self._cancel_write_timer()
        self._server_state.connections.discard(self)
        self._connections.pop(self, None)
        self._server.closing.pop(self, None)
        self._server.delegated.discard(self)
        self._drop_buffer()
        self._release_answer()
        if self._task is not None:
            self._task.cancel()
        else:
            self._release_review()
        if self._inner is not None:
            self._lose_inner(exc)

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
        if self.state is State.BODY:
            # The time spent waiting for the client must not count as time in the queue.
            self._received_at = monotonic()
            self._wait_for_answer()
        elif self.state in (State.DELEGATED, State.CLOSING):
            self._transport.abort()
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
        before, self.state = self.state, state
        in_flight = self._server.in_flight
        in_flight.requests += (state in _IN_PROGRESS) - (before in _IN_PROGRESS)
        # The handler counts reviews that it works on.
        in_flight.reviews += (state is State.WRITING) - (before is State.WRITING)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._on_timeout)
        if self._read_paused and state not in _BUFFERING:
            self._read_paused = False
            self._budget.used_bytes -= _PAUSED_BYTES
            self._transport.resume_reading()

    def _continue(self) -> None:
        """Enter the state that follows an answer."""
        if self._unsent or self._write_paused:
            self._enter(State.WRITING)
        elif self._missing_bytes:
            self._enter(State.DISCARDING, self._limits.drain_body_timeout_seconds)
        elif self._last:
            # The client has this time to read the answer.
            self._close(self._limits.write_timeout_seconds)
        elif self._buffer:
            self._enter(State.PIPELINED)
            self._timer = self._loop.call_soon(self._begin_pipelined)
        else:
            self._enter(State.IDLE, self._limits.idle_timeout_seconds)

    def _close(self, seconds: float) -> None:
        """Close the connection. Abort it if the client does not close its side in time."""
        if self._inner is not None:
            self._take_over()
        self._connections.pop(self, None)
        self._drop_buffer()
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
        waiting_clients = State.WAITING, State.DELEGATED
        idle_or_slow = (found for found in others if found.state not in waiting_clients)
        next(idle_or_slow, others[0])._close(self._limits.close_timeout_seconds)

    # Heads

    def _begin_pipelined(self) -> None:
        """Begin the next request in the buffer."""
        self._received_at = self._clock.now or self._clock.start(self._loop)
        empty_bytes = len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))
        self._take(empty_bytes)
        if self._buffer:
            self._read_head()
        else:
            self._continue()

    def _read_head(self) -> None:
        """Parse the head at the beginning of the buffer, as far as it was received."""
        parsed = self._parsed_bytes
        end = self._buffer.find(HEAD_END, max(parsed - len(HEAD_END) + 1, 0)) + len(HEAD_END)
        is_complete = end >= len(HEAD_END)
        received_bytes = end if is_complete else len(self._buffer)
        limit = self._limits.max_header_bytes
        if received_bytes > limit:
            self._refuse(400, f"The headers are longer than {limit} bytes.")
            return
        guaranteed_bytes = self._limits.guaranteed_body_bytes
        if not is_complete and received_bytes > guaranteed_bytes and self._budget.exhausted:
            self._refuse(503, "Other requests occupy the memory.")
            return
        if is_complete and not parsed and end <= MAX_CACHED_HEAD_BYTES:
            head: RequestHead | None = _cached_head(bytes(self._buffer[:end]))
        else:
            self._parser = self._parser or HeadParser()
            self._parser.feed(bytes(self._buffer[parsed:received_bytes]))
            head = self._parser.head()
        if head is None and not is_complete:
            self._parsed_bytes = received_bytes
            if self.state is not State.HEAD:
                self._enter(State.HEAD, self._limits.header_timeout_seconds)
            return
        self._parser, self._parsed_bytes = None, 0
        head = head or _INVALID_HEAD
        text = self._take(received_bytes)
        if head.error is not None:
            if log.isEnabledFor(logging.DEBUG):
                client = self._transport.get_extra_info("peername")
                cause = invalid_cause(text) if head.error == _INVALID_ERROR else head.error
                log.debug("request from %s: answered 400: %s", client, cause)
            self._refuse(400, head.error, head)
        elif head.is_review and self._serves_reviews:
            self._begin_review(head)
        else:
            self._delegate(text, head)

    # Reviews

    def _begin_review(self, head: RequestHead) -> None:
        """Answer a review, or wait for the rest of its body."""
        self._last = self._last or head.close
        self._deadline_seconds = head.deadline_seconds
        self._missing_bytes = head.length
        self._review = ReviewBody(self._budget, self._limits)
        queued_seconds = monotonic() - self._received_at
        body_seconds = self._server.handler.body_timeout(head.deadline_seconds) - queued_seconds
        self._enter(State.BODY, body_seconds)
        self._read_body(self._take(len(self._buffer)))

    def _read_body(self, data: bytes) -> None:
        """Add data to the body, and answer the review if no more is needed."""
        review = self._review
        assert review is not None  # noqa: S101
        piece = data[: self._missing_bytes]
        self._missing_bytes -= len(piece)
        review.feed(piece)
        if not self._missing_bytes:
            review.finish()
        if review.wants_more:
            return
        self._keep_for_later(data[len(piece) :])
        if review.complete and review.length <= GUARANTEED_DECISION_BYTES:
            body = review.data
            self._release_review()
            self._answer_at_once(body, self._deadline_seconds)
        else:
            self._wait_for_answer()

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
        self._enter(State.WAITING)
        timing = ReviewTiming(self._received_at, self._deadline_seconds)
        self._task = self._loop.create_task(self._server.handler.handle(self._review, timing))
        self._server_state.tasks.add(self._task)  # type: ignore[arg-type]
        self._task.add_done_callback(self._on_answer)

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
            self._last = True
            self._server.count_refused(500)
            self._send(500, TEXT_TYPE, b"Internal Server Error")
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

    def _refuse(self, status: int, message: str, head: RequestHead | None = None) -> None:
        """Send an HTTP error and close the connection, after the rest of the request was received.

        Without a head, the end of the request is not known.
        """
        self._last = True
        self._server.count_refused(status)
        if head is None:
            self._missing_bytes = _UNKNOWN_BYTES
            self._drop_buffer()
        else:
            self._expect_body(head)
            self._discard(self._take(len(self._buffer)))
        self._send(status, TEXT_TYPE, message.encode())

    # Delegated requests

    def _delegate(self, text: bytes, head: RequestHead) -> None:
        """Construct uvicorn's protocol, and forward the head of a request to it."""
        has_body = head.is_chunked or head.length > 0
        if has_body and len(self._server.delegated) >= self._limits.max_delegated:
            self._refuse(503, "Too many requests are in progress.", head)
            return
        max_headers = self._limits.max_headers
        if text.count(b"\r\n") - 2 > max_headers:
            self._refuse(400, f"There are more than {max_headers} headers.", head)
            return
        if has_body:
            self._server.delegated.add(self)
        self._expect_body(head)
        app_state = self._app_state | {RECEIVED_AT_KEY: self._received_at}
        certificate = self._transport.get_extra_info("peercert")
        if certificate:
            app_state[CLIENT_CERTIFICATE_KEY] = certificate
        inner = self._inner = HttpToolsProtocol(
            config=self._config,
            server_state=self._server_state,
            app_state=app_state,
            _loop=self._loop,
        )
        self._inner_transport = _InnerTransport(self._transport, self._on_inner_close)
        self._enter(State.DELEGATED, self._limits.delegated_timeout_seconds)
        # The inner protocol adds itself. The server must not count the connection twice.
        self._server_state.connections.discard(self)
        inner.connection_made(self._inner_transport)
        if self._write_paused:
            inner.pause_writing()
        request_line, line_end, headers = text.partition(b"\r\n")
        inner.data_received(b"%b\r\nConnection: close%b%b" % (request_line, line_end, headers))
        self._forward(self._take(len(self._buffer)))

    def _expect_body(self, head: RequestHead) -> None:
        self._missing_bytes = _UNKNOWN_BYTES if head.is_chunked else head.length
        self._chunks = ChunkedBody() if head.is_chunked else None

    def _forward(self, data: bytes) -> None:
        """Forward the part of the data that belongs to the body. The rest is discarded."""
        if self._chunks is None:
            data = data[: self._missing_bytes]
            self._missing_bytes -= len(data)
        else:
            data = self._chunks.take(data)
            if self._chunks.complete:
                self._missing_bytes = 0
        inner, transport = self._inner, self._inner_transport
        if data and inner is not None and transport is not None and not transport.is_closing():
            inner.data_received(data)

    def _on_inner_close(self) -> None:
        """Schedule the end of the inner protocol, which is still running."""
        self._loop.call_soon(self._end_delegation)

    def _end_delegation(self) -> None:
        """Continue after the inner protocol, which has answered its request."""
        if self._inner is not None:
            self._take_over()
            self._last = True
            self._continue()

    def _take_over(self) -> None:
        """End the inner protocol, but not the connection."""
        self._lose_inner(None)
        self._server.delegated.discard(self)
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        # The inner protocol may have paused reading.
        self._transport.resume_reading()

    def _lose_inner(self, exc: Exception | None) -> None:
        """End the inner protocol. Free both objects without a garbage collection."""
        assert self._inner is not None  # noqa: S101
        self._inner.connection_lost(exc)
        self._inner = self._inner_transport = None

    # Memory

    def _keep(self, data: bytes) -> None:
        """Add data to the buffer."""
        self._buffer += data
        self._budget.used_bytes += len(data)

    def _keep_for_later(self, data: bytes) -> None:
        """Add pipelined requests to the buffer, within limits.

        API servers do not pipeline, so nothing of theirs is lost if the memory is exhausted.
        """
        if not data or self._last:
            return
        if self._budget.exhausted:
            self._last = True
            self._drop_buffer()
            return
        self._keep(data)
        if len(self._buffer) > self._limits.max_pipelined_bytes and not self._read_paused:
            self._read_paused = True
            self._budget.used_bytes += _PAUSED_BYTES
            self._transport.pause_reading()

    def _discard(self, data: bytes) -> bytes:
        """Discard the part of the data that belongs to the current request's body. Return the rest.

        No request follows a chunked body, so the rest is discarded, too.
        """
        if self._chunks is not None:
            self._chunks.take(data)
            if self._chunks.complete:
                self._missing_bytes = 0
            return b""
        count = min(self._missing_bytes, len(data))
        self._missing_bytes -= count
        return data[count:]

    def _take(self, count: int) -> bytes:
        """Remove and return the first bytes of the buffer."""
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        self._budget.used_bytes -= len(data)
        return data

    def _drop_buffer(self) -> None:
        self._budget.used_bytes -= len(self._buffer)
        self._buffer.clear()

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


class _InnerTransport(asyncio.Transport):
    """The transport as the inner protocol sees it.

    It does not close the connection, because the rest of the body may have to be discarded first.
    """

    def __init__(self, transport: asyncio.Transport, on_close: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._on_close = on_close
        self._is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closed:
            self._transport.write(data)

    def pause_reading(self) -> None:
        if not self._is_closed:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_closed:
            self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._is_closed or self._transport.is_closing()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._on_close()
