"""The requests to which the protocol and stock uvicorn give different answers.

A class is recognised by the request alone, and says exactly what the protocol answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import httptools

from tests.support.raw_answers import Answer
from tests.support.raw_requests import (
    HEAD_END,
    MAX_HEADERS,
    first_request,
    head_length,
    is_plain_review,
    read_head,
    read_version,
)
from webhook.server.limits import DEFAULT_LIMITS

MAX_HEAD_BYTES = DEFAULT_LIMITS.max_header_bytes
MAX_OTHER_HEAD_BYTES = DEFAULT_LIMITS.max_handed_over_header_bytes
LONG_HEAD = "long head"


@dataclass(frozen=True)
class Difference:
    """Requests to which the protocol gives another answer than stock uvicorn."""

    name: str
    reason: str
    applies: Callable[[bytes], bool]
    """Whether the first request of these bytes belongs to this class."""
    answer: Callable[[Answer | None], Answer | None] = lambda answer: answer
    """Returns the answer of the protocol for the answer of stock uvicorn."""
    first_only: bool = False
    """Whether the answer is the one that stock uvicorn gives to the first request alone."""


def _invalid(message: str) -> Callable[[Answer | None], Answer]:
    return lambda _answer: Answer(400, "text/plain; charset=utf-8", message.encode(), closes=True)


def _is_valid(data: bytes) -> bool:
    """Return whether uvicorn's parser accepts the data. It need not be complete."""
    try:
        httptools.HttpRequestParser(object()).feed_data(data)
    except httptools.HttpParserUpgrade:
        return True
    except httptools.HttpParserError:
        return False
    return True


def _is_broken_behind_the_first(data: bytes) -> bool:
    first = first_request(data)
    return first is not None and not _is_valid(data[first.length :])


def _has_trailers(data: bytes) -> bool:
    first = first_request(data)
    return first is not None and first.trailers not in (b"", b"\r\n")


def _is_valid_other(data: bytes) -> bool:
    """Return whether the data begins with a whole head that is valid and not that of a review."""
    length = head_length(data)
    return (
        data[:length].endswith(HEAD_END)
        and not is_plain_review(data, MAX_HEAD_BYTES)
        and _is_valid(data[:length])
    )


def _has_long_other_head(data: bytes) -> bool:
    length = head_length(data.lstrip(b"\r\n"))
    return length > MAX_OTHER_HEAD_BYTES and _is_valid_other(data)


def _has_many_headers(data: bytes) -> bool:
    text = data.lstrip(b"\r\n")
    return text.count(b"\n", 0, head_length(text)) > MAX_HEADERS + 2


def _upgrades(data: bytes) -> bool:
    head = read_head(data)
    return (
        head is not None
        and (head.method == b"CONNECT" or head.values(b"upgrade") != [])
        and _is_valid(data[: head_length(data)])
    )


def _has_other_hosts(data: bytes) -> bool:
    head = read_head(data)
    if head is None or head.version not in (b"1.0", b"1.1"):
        return False
    count = len(head.values(b"host"))
    lacks = not count and head.version == b"1.1"
    return (lacks or count > 1) and _is_valid(data[: head_length(data)])


def _has_other_version(data: bytes) -> bool:
    version = read_version(data)
    return version not in (None, b"1.0", b"1.1") and _is_valid(data[: head_length(data)])


DIFFERENCES = (
    Difference(
        "bytes behind a request",
        "uvicorn parses all received bytes before it answers, so it answers 400 to a valid request "
        "because of an error behind it",
        _is_broken_behind_the_first,
        first_only=True,
    ),
    Difference(
        "trailers",
        "the protocol discards the trailer section, because uvicorn stores it without a limit, and "
        "does not wait for its end",
        _has_trailers,
        first_only=True,
    ),
    Difference(
        "request that is handed over",
        "a connection that is handed over serves one request",
        lambda data: not is_plain_review(data, MAX_HEAD_BYTES),
        lambda answer: answer and answer._replace(closes=True),
    ),
    Difference(
        "long head of a request that is handed over",
        "uvicorn has no limit",
        _has_long_other_head,
        _invalid(f"The headers are longer than {MAX_OTHER_HEAD_BYTES} bytes."),
    ),
    Difference(
        "upgrade",
        "uvicorn ignores the header, or treats the body as another protocol",
        _upgrades,
        _invalid("This server supports HTTP/1.1 only: send no Upgrade header, and no CONNECT."),
    ),
    Difference(
        "no Host, or two",
        "RFC 9112 demands 400, and uvicorn accepts the request",
        _has_other_hosts,
        _invalid("A request needs exactly one Host header. With HTTP/1.0 it may have none."),
    ),
    Difference(
        "other HTTP version",
        "uvicorn accepts HTTP/0.9, which has no version in the request line, and HTTP/2.0",
        _has_other_version,
        _invalid("Invalid HTTP request received."),
    ),
    Difference(
        "many headers",
        "uvicorn has no limit",
        _has_many_headers,
        _invalid("Invalid HTTP request received."),
    ),
    Difference(
        LONG_HEAD,
        "uvicorn has no limit",
        lambda data: head_length(data.lstrip(b"\r\n")) > MAX_HEAD_BYTES,
        _invalid(f"The headers are longer than {MAX_HEAD_BYTES} bytes."),
    ),
)


# Two more classes depend on more than the first request.

PIPELINED = "bytes behind a review"
"""API servers do not pipeline. If bytes behind a review arrive before its answer is sent, the
protocol closes the connection after this answer. It discards the bytes."""
INCOMPLETE = "incomplete review"
"""The protocol does not wait for the rest of a review that it has answered at its deadline."""


def allow_close(
    expected: list[Answer | None], actual: list[Answer | None]
) -> tuple[list[Answer | None], str]:
    """Return what is expected of pipelined reviews, of which some were answered."""
    found = expected[: max(len(actual), 1)]
    last, answered = found[-1], actual[-1] if actual else None
    if last and answered and (answered.closes or len(found) < len(expected)):
        found[-1] = last._replace(closes=True)
    return found, PIPELINED


def expect_close(expected: list[Answer | None]) -> tuple[list[Answer | None], str]:
    """Return what is expected of reviews of which the last one is incomplete."""
    last = expected[-1] if expected else None
    return [*expected[:-1], last and last._replace(closes=True)], INCOMPLETE
