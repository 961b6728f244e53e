"""Heads of requests: which ones podsettle refuses, which are reviews, and which uvicorn gets.

A head ends at its first empty line. The parser receives nothing else. Empty lines before a head are
ignored.

| head                                                                          | result        |
|-------------------------------------------------------------------------------|---------------|
| refused by httptools; a line feed or carriage return without the other; a     | 400           |
| continued line; two Content-Lengths, or one with a Transfer-Encoding; neither |               |
| HTTP/1.0 nor HTTP/1.1; more than 100 headers                                  |               |
| two Host headers, or none with HTTP/1.1 (RFC 9112 demands 400)                | 400           |
| an Upgrade header, or CONNECT (uvicorn would ignore the body, or parse it as  | 400           |
| the next request: request smuggling)                                          |               |
| POST of JSON to /mutate in origin-form, HTTP/1.1, Content-Length of at least  | review        |
| 1, no Expect                                                                  |               |
| all others: Transfer-Encoding, Expect, HTTP/1.0, other targets and methods    | handed over   |
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import httptools

from webhook.server.health import PROBE_PATHS
from webhook.server.reviews.handler import GUARANTEED_DECISION_BYTES
from webhook.server.reviews.request import ADMISSION_PATHS, answer_seconds, is_json

HEAD_END = b"\r\n\r\n"
"""The bytes at the end of a head."""
MAX_CACHED_HEAD_BYTES = 1024
"""The results of parsing longer heads are not cached. Heads from an API server have about 200
bytes."""
MAX_HEADERS = 100
"""Maximum number of headers of a request. An API server sends 8. The parser calls Python for each
header, so 100 clients that sent heads of 64 KiB with 16,000 headers delayed reviews by a second.
uvicorn keeps objects of a hundred bytes for each header, even if the header is shorter."""
_MAX_LINES = MAX_HEADERS + 2
"""With the request line, and the empty line at the end."""
_CACHED_HEADS = 512

_DECIDING_HEADERS = frozenset(
    {b"content-length", b"content-type", b"expect", b"transfer-encoding", b"upgrade"}
)
_HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Some releases of httptools accept spaces. Other servers read such names differently."""
_INVALID_LINE_END = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]")
"""A line feed or carriage return alone, or a continued line. Some releases of httptools take a
carriage return alone for the end of the head, and other servers do not."""
_HTTP_VERSIONS = ("1.0", "1.1")
"""httptools accepts HTTP/0.9 and HTTP/2.0, too. With them, `Connection: keep-alive` overrides the
`Connection: close` that is inserted into requests for uvicorn."""

_INVALID_ERROR = "Invalid HTTP request received."
"""uvicorn answers an invalid request with the same text."""
_HOST_ERROR = "A request needs exactly one Host header. With HTTP/1.0 it may have none."
_UPGRADE_ERROR = "This server supports HTTP/1.1 only: send no Upgrade header, and no CONNECT."


class RequestHead(NamedTuple):
    """What the head of a request says about the processing of the request."""

    error: str | None = None
    """The text of a 400, if the request is refused."""
    cause: str = ""
    """What is wrong with an invalid head, for the log."""
    length: int = 0
    """Content-Length, or 0."""
    is_chunked: bool = False
    """Whether there is a Transfer-Encoding instead of a Content-Length."""
    is_probe: bool = False
    """Whether it is a request for the health of the process, without a body."""
    is_review: bool = False
    """Whether the ReviewHandler answers the request. Its length is then at least 1."""
    is_plain: bool = False
    """Whether it is a review that can be answered at once and leaves the connection open."""
    close: bool = False
    """Whether the client asks for the end of the connection."""
    deadline_seconds: float = 0.0
    """The time within which podsettle must answer a review."""


def _invalid_head(cause: str) -> RequestHead:
    """Return the result for a head that is not valid, or that other servers may read differently.

    All of them get the same answer, so `cause` is for the log.
    """
    return RequestHead(_INVALID_ERROR, cause=cause)


INVALID_HEAD = _invalid_head("no valid HTTP/1.0 or HTTP/1.1")


class HeadParser:
    """An incremental parser for one head."""

    def __init__(self) -> None:
        # The parser refers to the callbacks only, so there is no reference cycle.
        self._callbacks = _ParserCallbacks()
        self._parser = httptools.HttpRequestParser(self._callbacks)
        self._line_end = b""
        """The line feeds and carriage returns at the end of the data so far."""
        self._lines = 0
        self._error: str | None = None
        """Why the head is invalid."""
        self._is_upgrade = False

    def feed(self, data: bytes) -> None:
        """Parse a part of the head. The last part ends with the first HEAD_END."""
        self._lines += data.count(b"\n")
        lines = self._line_end + data
        self._line_end = lines[len(lines.rstrip(b"\r\n")) :]
        # A line feed can follow a carriage return at the end.
        if self._lines > _MAX_LINES:
            self._error = f"more than {MAX_HEADERS} headers"
            return
        if _INVALID_LINE_END.search(lines.removesuffix(b"\r")):
            self._error = "a line end other than CR LF, or a continued line"
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_upgrade = True
        except httptools.HttpParserError as error:
            self._error = str(error)

    def head(self) -> RequestHead | None:
        """Return the parsed head, or None if it is valid so far, but not complete."""
        found, parser = self._callbacks, self._parser
        error = found.ambiguity if self._error is None else self._error
        if error is not None:
            return _invalid_head(error)
        if not found.complete:
            return None
        version, method, headers = parser.get_http_version(), parser.get_method(), found.headers
        is_chunked = b"transfer-encoding" in headers
        digits = headers.get(b"content-length", b"0").strip()
        if version not in _HTTP_VERSIONS or not digits.isdigit():
            return INVALID_HEAD
        if is_chunked and b"content-length" in headers:
            return _invalid_head("both Content-Length and Transfer-Encoding")
        length = int(digits)
        if found.host_count != 1 and (found.host_count or version == "1.1"):
            return RequestHead(_HOST_ERROR)
        if self._is_upgrade or b"upgrade" in headers:
            return RequestHead(_UPGRADE_ERROR)
        path, query = _path_and_query(found.url)
        if (
            length
            and method == b"POST"
            and path in ADMISSION_PATHS
            and version == "1.1"
            and b"expect" not in headers
            and is_json(headers.items())
        ):
            close = not parser.should_keep_alive()
            return RequestHead(
                length=length,
                is_review=True,
                is_plain=length <= GUARANTEED_DECISION_BYTES and not close,
                close=close,
                deadline_seconds=answer_seconds(query),
            )
        has_body = is_chunked or length > 0
        is_probe = path in PROBE_PATHS and method in (b"GET", b"HEAD") and not has_body
        return RequestHead(length=length, is_chunked=is_chunked, is_probe=is_probe)


class _ParserCallbacks:
    """The callbacks of httptools' parser, which store what decides about a request.

    They do not store all headers, which may have 64 KiB.
    """

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        """The first header of each name in _DECIDING_HEADERS."""
        self.ambiguity: str | None = None
        """Why other servers may read the headers differently."""
        self.host_count = 0
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-length" and name in self.headers:
            self.ambiguity = "more than one Content-Length"
        elif name in _DECIDING_HEADERS:
            self.headers.setdefault(name, value)
        elif name == b"host":
            self.host_count += 1
        elif not _HEADER_NAME.fullmatch(name):
            self.ambiguity = "an invalid header name"

    def on_headers_complete(self) -> None:
        self.complete = True


def _path_and_query(target: bytes) -> tuple[str, bytes]:
    """Return the path and the query of a target in origin-form. The path of others is empty."""
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserError:
        return "", b""
    if not target.startswith(b"/"):
        return "", b""
    return (url.path or b"").decode("latin-1"), url.query or b""


def parse_head(head: bytes) -> RequestHead:
    """Parse a complete head, which ends with its first HEAD_END."""
    parser = HeadParser()
    parser.feed(head)
    return parser.head() or INVALID_HEAD


cached_head = lru_cache(maxsize=_CACHED_HEADS)(parse_head)
"""Heads from one API server differ only in the Content-Length, so most heads are equal to an
earlier head. To parse a head takes nearly as long as a decision. The key is the whole head."""
