"""Heads of requests on the port of reviews: which requests are answered, and which are refused.

h11 parses them, as it does for uvicorn on the web port. What other servers may read differently is
refused. Empty lines before a head are ignored.

| head                                                                            | result |
|---------------------------------------------------------------------------------|--------|
| POST of JSON to /mutate with a Content-Length, `Expect: 100-continue` included   | review |
| GET or HEAD of /livez or /readyz without a body                                  | probe  |
| refused by h11; a line feed or carriage return without the other; a continued    | 400    |
| line; more than one Content-Length; neither HTTP/1.0 nor HTTP/1.1                |        |
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
from functools import lru_cache
from typing import NamedTuple

import h11

from webhook.server.reviews.request import ADMISSION_PATHS, Refusal, answer_seconds, is_json

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
_LENGTHS = re.compile(rb"\r\ncontent-length:([^\r]*)", re.IGNORECASE)
_OTHER_PATH = Refusal(
    404, "This port serves /mutate, /livez and /readyz. All other paths are on --web-port."
)
_NO_LENGTH = Refusal(411, "Send a Content-Length, and no Transfer-Encoding.")


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
    return _read_cached(head) if len(head) <= MAX_CACHED_HEAD_BYTES else _parse(head)


def invalid_head(head: bytes, cause: str = "a line end other than CR LF") -> RequestHead:
    """Return what the beginning of an invalid head says."""
    # uvicorn answers an invalid request with the same text.
    refusal = Refusal(400, "Invalid HTTP request received.")
    return RequestHead(refusal, cause, is_head=head.startswith(b"HEAD "))


def _parse(head: bytes) -> RequestHead:
    lines = head.count(b"\r\n")
    if head.count(b"\n") != lines or head.count(b"\r") != lines:
        return invalid_head(head)
    is_head = head.startswith(b"HEAD ")
    if lines > MAX_HEADERS + 2:  # The request line, and the empty line at the end.
        text = f"A request may have {MAX_HEADERS} headers."
        return RequestHead(Refusal(431, text), is_head=is_head)
    if b"\n " in head or b"\n\t" in head:
        return invalid_head(head, "a continued line")
    # h11 takes equal Content-Lengths for one, in one header as well as in two.
    if b"," in b",".join(_LENGTHS.findall(head)):
        return invalid_head(head, "more than one Content-Length")
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(head)
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        if error.error_status_hint == 501:  # An unknown Transfer-Encoding.
            return RequestHead(_NO_LENGTH, is_head=is_head)
        return invalid_head(head, str(error))
    assert isinstance(request, h11.Request)  # noqa: S101
    headers = dict(request.headers)
    if request.http_version not in (b"1.0", b"1.1"):
        return invalid_head(head, "neither HTTP/1.0 nor HTTP/1.1")
    target, _, query = request.target.partition(b"?")
    length = int(headers.get(b"content-length", b"0"))
    has_coding = b"transfer-encoding" in headers
    refusal = None
    if target in _PROBE_PATHS:
        if request.method not in (b"GET", b"HEAD"):
            refusal = Refusal(405, "GET this path.", b"GET, HEAD")
        elif length or has_coding:
            refusal = Refusal(413, "A probe has no body.")
    elif target.decode("latin-1") not in ADMISSION_PATHS:
        refusal = _OTHER_PATH
    elif request.method != b"POST":
        refusal = Refusal(405, "POST an AdmissionReview here.", b"POST")
    elif has_coding or b"content-length" not in headers:
        refusal = _NO_LENGTH
    elif not is_json(request.headers):
        refusal = Refusal(415, "send Content-Type: application/json")
    if refusal is not None:
        return RequestHead(refusal, is_head=is_head)
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
    """Replace the Content-Length before the head is parsed.

    Heads of one API server differ in the Content-Length only. To parse a head takes nearly as long
    as a decision, so a second cache has the head without this number as its key.
    """
    before, name, rest = head.partition(_LENGTH)
    digits, _, after = rest.partition(b"\r")
    if not (digits.isdigit() and len(digits) <= _MAX_DIGITS and head.startswith(b"POST ")):
        return _parse(head)
    found = _parse_cached(b"%b%b1\r%b" % (before, name, after))
    return found if found.refusal else found._replace(length=int(digits))
