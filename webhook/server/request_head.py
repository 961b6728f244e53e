"""What the head of a request with a review says, and each head read once.

The heads that an API server sends differ in the length of the body alone, so that most were read
before, byte for byte. To read one takes longer than to find it, and nearly as long as a decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qs

import httptools

from webhook.core.types import parse_duration
from webhook.server.responses import Header

ADMISSION_PATHS = ("/mutate", "/mutate/")
END = b"\r\n\r\n"
"""Of a head."""
LONGEST = 1024
"""Bytes of a head that is remembered; the API server's have 200."""

_LONGEST_QUERY = 256
"""Bytes that are read; the API server's holds a timeout."""

_SHARE_OF_TIMEOUT = 0.7
"""Of the time that the API server gives a webhook (`?timeout=2s`); the rest is for the way."""
_DEFAULT_TIMEOUT = 10_000
_LONGEST_TIMEOUT = 30_000
"""Milliseconds, as for `timeoutSeconds` in a webhook configuration."""


class ReviewHead(NamedTuple):
    """Of a request that asks for one answer to one review, and no more."""

    length: int
    """Bytes of the body."""
    deadline: float
    """Seconds in which to answer."""


@lru_cache(maxsize=512)
def read_head(head: bytes) -> ReviewHead | None:
    """What a head says, given up to and with its first END; None for any other request."""
    reader = _Reader()
    parser = httptools.HttpRequestParser(reader)
    try:
        parser.feed_data(head)
        url = httptools.parse_url(reader.url)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    headers = dict(reader.headers)
    if (
        not reader.complete
        or parser.get_method() != b"POST"
        or parser.get_http_version() != "1.1"
        or not parser.should_keep_alive()
        or b"expect" in headers
        or b"upgrade" in headers
        or not is_json(reader.headers)
    ):
        return None
    # 0 for a body in chunks: the parser takes no head that gives a length beside.
    length = int(headers.get(b"content-length", 0))
    if not length or (url.path or b"").decode("latin-1") not in ADMISSION_PATHS:
        return None
    return ReviewHead(length, answer_seconds(url.query or b""))


def is_json(headers: Iterable[Header]) -> bool:
    """Whether the headers, their names in small letters, log_check_changes JSON."""
    for name, value in headers:
        if name == b"content-type":
            return value.partition(b";")[0].strip().lower() == b"application/json"
    return False


def answer_seconds(query: bytes) -> float:
    """Seconds in which to answer, from the query of a request."""
    return _deadline(query[:_LONGEST_QUERY])


@lru_cache(maxsize=64)
def _deadline(query: bytes) -> float:
    timeouts = parse_qs(query.decode("latin-1")).get("timeout", ())
    try:
        timeout = min(parse_duration(timeouts[0]), _LONGEST_TIMEOUT) if timeouts else 0
    except ValueError:
        timeout = 0
    return (timeout or _DEFAULT_TIMEOUT) / 1000 * _SHARE_OF_TIMEOUT


class _Reader:
    """What the parser says of one head."""

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
        # The head ended before its bytes did.
        self.complete = False
