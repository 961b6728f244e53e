"""Heads of requests on the port of reviews: which requests are answered, and which are refused.

h11 parses them, as it does for uvicorn on the web port. What other servers may read differently is
refused. Empty lines before a head are ignored.

| head                                                                            | result |
|---------------------------------------------------------------------------------|--------|
| POST of JSON to /mutate with a Content-Length, `Expect: 100-continue` included   | review |
| GET or HEAD of /livez or /readyz without a body                                  | probe  |
| refused by h11; a line feed or carriage return without the other; a continued    | 400    |
| line; two Content-Lengths; neither HTTP/1.0 nor HTTP/1.1                         |        |
| a review of a client without a certificate, if the server needs one              | 403    |
| another path, and a target that is no path                                       | 404    |
| another method                                                                   | 405    |
| a review without a Content-Length, and a body of unknown length                  | 411    |
| a Content-Length above the maximum, or with a probe                              | 413    |
| a review of another Content-Type                                                 | 415    |
| longer than the maximum, or more than 100 headers                                | 431    |

An Upgrade is ignored, as RFC 9110, 7.8 allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import h11

from webhook.server.reviews.answer import Refusal
from webhook.server.reviews.request import ADMISSION_PATHS, answer_seconds, is_json

HEAD_END = b"\r\n\r\n"
"""The bytes at the end of a head."""
MAX_CACHED_HEAD_BYTES = 1024
"""The results of parsing longer heads are not cached. Heads from an API server have about 200
bytes."""
MAX_HEADERS = 100
"""Maximum number of headers of a request. An API server sends 8. h11 takes 2 µs for each, so heads
of 24 KiB with 6,000 headers would delay all reviews by 14 ms each."""

_CACHED_HEADS = 512
_PROBE_PATHS = (b"/livez", b"/readyz")
_LENGTH = b"\r\nContent-Length: "
"""As Go and curl write it."""
_MAX_DIGITS = 10
_INVALID_LINE_END = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]")
"""A line feed or carriage return alone, or a continued line."""
_INVALID = Refusal(400, "Invalid HTTP request received.")
"""uvicorn answers an invalid request with the same text."""
_OTHER_PATH = Refusal(
    404, "This port serves /mutate, /livez and /readyz. All other paths are on --web-port."
)
_NO_LENGTH = Refusal(411, "Send a Content-Length, and no Transfer-Encoding.")
_TOO_MANY_HEADERS = Refusal(431, f"A request may have {MAX_HEADERS} headers.")


class RequestHead(NamedTuple):
    """What the head of a request says about the processing of the request."""

    refusal: Refusal | None = None
    """The error with which the request is refused."""
    cause: str = ""
    """What is wrong with an invalid head, for the log."""
    probe: bytes = b""
    """The path of a probe."""
    is_head: bool = False
    """Whether the answer has no body, because the method is HEAD."""
    length: int = 0
    """Content-Length, or 0."""
    close: bool = False
    """Whether the client asks for the end of the connection."""
    waits: bool = False
    """Whether the client waits for `100 Continue` before it sends the body."""
    deadline_seconds: float = 0.0
    """The time within which podsettle must answer a review."""


def read_head(head: bytes) -> RequestHead:
    """Parse a complete head, which ends with its first HEAD_END."""
    return _read_cached(head) if len(head) <= MAX_CACHED_HEAD_BYTES else _read(head, _parse)


def _read(head: bytes, parse: Callable[[bytes], RequestHead]) -> RequestHead:
    """Replace the Content-Length before the head is parsed.

    Heads of one API server differ in the Content-Length only. To parse a head takes nearly as long
    as a decision, so the head without this number is the key of a cache.
    """
    begin = head.find(_LENGTH) + len(_LENGTH)
    end = head.find(b"\r\n", begin)
    digits = head[begin:end]
    is_post = head.startswith(b"POST ") and begin >= len(_LENGTH)
    if not (is_post and digits.isdigit() and len(digits) <= _MAX_DIGITS):
        return _parse(head)
    found = parse(head[:begin] + b"1" + head[end:])
    return found if found.refusal else found._replace(length=int(digits))


def _parse(head: bytes) -> RequestHead:
    if head.count(b"\n") > MAX_HEADERS + 2:  # The request line, and the empty line at the end.
        return RequestHead(_TOO_MANY_HEADERS)
    if _INVALID_LINE_END.search(head):
        return RequestHead(_INVALID, "a line end other than CR LF, or a continued line")
    # h11 takes equal Content-Lengths for one, but `read_head` has replaced the first of them.
    if head.lower().count(b"\r\ncontent-length:") > 1:
        return RequestHead(_INVALID, "more than one Content-Length")
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(head)
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        if error.error_status_hint == 501:  # An unknown Transfer-Encoding.
            return RequestHead(_NO_LENGTH)
        return RequestHead(_INVALID, str(error))
    assert isinstance(request, h11.Request)  # noqa: S101
    headers = dict(request.headers)
    if request.http_version not in (b"1.0", b"1.1"):
        return RequestHead(_INVALID, "neither HTTP/1.0 nor HTTP/1.1")
    target, _, query = request.target.partition(b"?")
    path, method = target.decode("latin-1"), request.method
    length = int(headers.get(b"content-length", b"0"))
    is_head = method == b"HEAD"
    if target in _PROBE_PATHS:
        if method not in (b"GET", b"HEAD"):
            return RequestHead(Refusal(405, "GET this path."), is_head=is_head)
        if length or b"transfer-encoding" in headers:
            return RequestHead(Refusal(413, "A probe has no body."), is_head=is_head)
    elif path not in ADMISSION_PATHS:
        return RequestHead(_OTHER_PATH, is_head=is_head)
    elif method != b"POST":
        return RequestHead(Refusal(405, "POST an AdmissionReview here."), is_head=is_head)
    elif b"transfer-encoding" in headers or b"content-length" not in headers:
        return RequestHead(_NO_LENGTH)
    elif not is_json(request.headers):
        return RequestHead(Refusal(415, "send Content-Type: application/json"))
    close = request.http_version == b"1.0" or any(
        name == b"connection" and b"close" in value.lower() for name, value in request.headers
    )
    return RequestHead(
        probe=target if target in _PROBE_PATHS else b"",
        is_head=is_head,
        length=length,
        close=close,
        waits=connection.they_are_waiting_for_100_continue,
        deadline_seconds=answer_seconds(query),
    )


_parse_cached = lru_cache(maxsize=_CACHED_HEADS)(_parse)


@lru_cache(maxsize=_CACHED_HEADS)
def _read_cached(head: bytes) -> RequestHead:
    return _read(head, _parse_cached)
