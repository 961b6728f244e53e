"""The heads that the fast path parses, and those that it leaves to uvicorn's parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.server.request_head import parse_review_head

PLAIN = (
    b"POST /mutate?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n"
    b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)


@pytest.mark.parametrize(
    ("was", "is_", "deadline"),
    [
        (b"", b"", 7.0),
        (b"?timeout=10s", b"/", 7.0),
        (b"timeout=10s", b"timeout=2s", 1.4),
        (b"/mutate", b"https://x/mutate", 7.0),
        (b"Content-Type", b"cOnTeNt-TyPe", 7.0),
        (b"application/json", b"Application/JSON; charset=utf-8", 7.0),
        (b"POST", b"\r\nPOST", 7.0),
    ],
    ids=str,
)
def test_review_head_gives_length_and_deadline(was: bytes, is_: bytes, deadline: float) -> None:
    head = parse_review_head(PLAIN.replace(was, is_, 1))
    assert head is not None
    assert head.length == 12
    assert head.deadline_seconds == pytest.approx(deadline)


@pytest.mark.parametrize(
    ("was", "is_"),
    [
        (b"POST", b"PUT"),
        (b"POST", b"POSTS"),
        (b"/mutate", b"/preview"),
        (b"/mutate", b"/%6dutate"),
        (b"/mutate?timeout=10s", b"http://x"),
        (b"/mutate?timeout=10s", b"*"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"HTTP/1.1", b"HTTP/1.0\r\nConnection: keep-alive"),
        (b"Host: x", b"Connection: close"),
        (b"Host: x", b"Connection: Upgrade\r\nUpgrade: websocket"),
        (b"Host: x", b"Host: x\r\nUpgrade: h2c"),
        (b"Host: x", b"Expect: 100-continue"),
        (b"Host: x", b"Transfer-Encoding: chunked"),
        (b"Content-Length: 12", b"Transfer-Encoding: chunked"),
        (b"Content-Length: 12", b"Transfer-Encoding: identity"),
        (b"Content-Length: 12", b"X: 12"),
        (b"Content-Length: 12", b"Content-Length: 0"),
        (b"Content-Length: 12", b"Content-Length: -12"),
        (b"Content-Length: 12", b"Content-Length: 0x12"),
        (b"Content-Length: 12", b"Content-Length: 12, 12"),
        (b"Content-Length: 12", b"Content-Length: 12\r\nContent-Length: 13"),
        (b"Content-Length: 12", b"Content-Length: 12\r\nContent-Length: 12"),
        (b"Content-Length: 12", b"Content-Length: 99999999999999999999999"),
        (b"Host: x", b"Ho st: x"),
        (b"Host: x", b"Host : x"),
        (b"Host: x", b"Host: x\x00"),
        (b"application/json", b"text/plain"),
        (b"Content-Type", b"Content-Typo"),
        (b"\r\n\r\n", b"\r\n"),
        (b"\r\n\r\n", b"\r\n\r\n{"),
        (b"\r\n", b"\n"),
    ],
    ids=str,
)
def test_other_heads_are_left_to_the_parser(was: bytes, is_: bytes) -> None:
    assert was in PLAIN
    assert parse_review_head(PLAIN.replace(was, is_, 1)) is None


@given(
    st.binary(max_size=300) | st.from_regex(rb"POST /\S{,20} HTTP/1.1\r\n(\S+: \S+\r\n){,4}\r\n")
)
def test_parsing_a_head_never_raises(head: bytes) -> None:
    found = parse_review_head(head)
    assert found is None or found.length > 0
