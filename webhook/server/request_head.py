"""The parser for the head of a review's request. The head is the request line and the headers.

Heads from one API server differ only in the Content-Length, so most heads are equal to an earlier
head. Results are cached, because to parse a head takes nearly as long as a decision.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import httptools

from webhook.server.responses import Header
from webhook.server.review_request import ADMISSION_PATHS, answer_seconds, is_json

HEAD_END = b"\r\n\r\n"
"""The bytes at the end of a head."""
MAX_CACHED_HEAD_BYTES = 1024
"""Longer heads are left to uvicorn's parser. Heads from an API server have about 200 bytes."""


class ReviewHead(NamedTuple):
    """The head of a request that the fast path can answer."""

    length: int
    """Content-Length: the length of the body in bytes."""
    deadline_seconds: float
    """The time within which podsettle must answer."""


@lru_cache(maxsize=512)
def parse_review_head(head: bytes) -> ReviewHead | None:
    """Parse a head that ends with its first HEAD_END. Return None if the fast path cannot be used.

    The fast path is for a POST of JSON with a Content-Length to /mutate. The request must leave the
    connection open, and must have no Expect and no Upgrade header.
    """
    callbacks = _ParserCallbacks()
    parser = httptools.HttpRequestParser(callbacks)
    try:
        parser.feed_data(head)
        url = httptools.parse_url(callbacks.url)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    headers = dict(callbacks.headers)
    if (
        not callbacks.complete
        or parser.get_method() != b"POST"
        or parser.get_http_version() != "1.1"
        or not parser.should_keep_alive()
        or b"expect" in headers
        or b"upgrade" in headers
        or not is_json(callbacks.headers)
    ):
        return None
    # The length of a chunked body is 0 here. The parser refuses a head that has both
    # Transfer-Encoding and Content-Length.
    length = int(headers.get(b"content-length", 0))
    if not length or (url.path or b"").decode("latin-1") not in ADMISSION_PATHS:
        return None
    return ReviewHead(length, answer_seconds(url.query or b""))


class _ParserCallbacks:
    """The callbacks of httptools' parser, which store the parts of one head."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[Header] = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.complete = True

    def on_body(self, _body: bytes) -> None:
        # The parser found the end of the head before HEAD_END, so the head is malformed.
        self.complete = False
