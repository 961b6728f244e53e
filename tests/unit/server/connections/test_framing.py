"""Framing: what the protocol does with a request because of its head, and where bodies end."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.server.connections.body_end import (
    MAX_SMALL_CHUNKS,
    SMALL_CHUNK_BYTES,
    ChunkedBody,
)
from webhook.server.connections.request_head import (
    MAX_HEADERS,
    HeadParser,
    RequestHead,
    parse_head,
)

PLAIN = (
    b"POST /mutate?timeout=10s HTTP/1.1\r\nHost: x\r\nX: y\r\nContent-Length: 12\r\n"
    b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)
INVALID = "Invalid HTTP request received."
HEADS = st.binary(max_size=300) | st.from_regex(
    rb"(POST|GET|PRI) [/*]\S{,20} HTTP/1.[01]\r\n([\w-]+: ?\S*\r?\n){,4}\r\n"
)


def changed(was: bytes, is_: bytes) -> RequestHead:
    assert was in PLAIN
    return parse_head(PLAIN.replace(was, is_, 1))


# Heads


@pytest.mark.parametrize(
    ("was", "is_", "deadline"),
    [
        (b"", b"", 7.0),
        (b"?timeout=10s", b"/", 7.0),
        (b"timeout=10s", b"timeout=2s", 1.4),
        (b"Content-Type", b"cOnTeNt-TyPe", 7.0),
        (b"application/json", b"Application/JSON; charset=utf-8", 7.0),
        (b"POST", b"\r\nPOST", 7.0),
        (b"X: y", b"Connection: keep-alive", 7.0),
    ],
    ids=str,
)
def test_review_head_gives_length_and_deadline(was: bytes, is_: bytes, deadline: float) -> None:
    head = changed(was, is_)
    assert head.error is None
    assert head.is_review
    assert head.is_plain
    assert (head.length, head.is_chunked, head.close) == (12, False, False)
    assert head.deadline_seconds == pytest.approx(deadline)


def test_review_head_with_connection_close_is_a_review_that_closes() -> None:
    head = changed(b"X: y", b"Connection: close")
    assert (head.is_review, head.is_plain, head.close) == (True, False, True)


def test_review_that_may_exhaust_the_memory_is_not_answered_at_once() -> None:
    limit = 256 * 1024
    assert changed(b"Length: 12", b"Length: %d" % limit).is_plain
    head = changed(b"Length: 12", b"Length: %d" % (limit + 1))
    assert (head.is_review, head.is_plain) == (True, False)


@pytest.mark.parametrize(
    ("was", "is_"),
    [
        (b"POST", b"PUT"),
        (b"/mutate", b"/preview"),
        (b"/mutate", b"/%6dutate"),
        (b"/mutate", b"//mutate"),
        (b"/mutate", b"https://x/mutate"),
        (b"/mutate?timeout=10s", b"http://x"),
        (b"/mutate?timeout=10s", b"*"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"HTTP/1.1", b"HTTP/1.0\r\nConnection: keep-alive"),
        (b"X: y", b"Expect: 100-continue"),
        (b"Content-Length: 12", b"Transfer-Encoding: chunked"),
        (b"Content-Length: 12", b"X: 12"),
        (b"Content-Length: 12", b"Content-Length: 0"),
        (b"application/json", b"text/plain"),
        (b"Content-Type", b"Content-Typo"),
    ],
    ids=str,
)
def test_other_valid_heads_are_handed_over(was: bytes, is_: bytes) -> None:
    head = changed(was, is_)
    assert head.error is None
    assert not head.is_review
    assert head.is_chunked == (b"chunked" in is_)
    assert head.length == (12 if b"Content-Length" not in was else 0)


@pytest.mark.parametrize(
    ("was", "is_"),
    [
        (b"POST", b"POSTS"),
        (b"POST /", b"PRI /"),
        (b"X: y", b"Transfer-Encoding: chunked"),
        (b"X: y", b"Transfer-Encoding: identity"),
        (b"Content-Length: 12", b"Content-Length: -12"),
        (b"Content-Length: 12", b"Content-Length: +12"),
        (b"Content-Length: 12", b"Content-Length: 0x12"),
        (b"Content-Length: 12", b"Content-Length: 1_2"),
        (b"Content-Length: 12", b"Content-Length: 12, 12"),
        (b"Content-Length: 12", b"Content-Length: "),
        (b"Content-Length: 12", b"Content-Length: 12\r\nContent-Length: 13"),
        (b"Content-Length: 12", b"Content-Length: 12\r\nContent-Length: 12"),
        (b"Content-Length: 12", b"Content-Length: 99999999999999999999999"),
        (b"HTTP/1.1", b"HTTP/0.9"),
        (b"HTTP/1.1", b"HTTP/2.0"),
        (b" HTTP/1.1", b""),
        (b"HTTP/1.1\r\nHost: x", b"HTTP/2.0\r\nConnection: keep-alive"),
        (b"X: y", b"Ho st: x"),
        (b"X: y", b"Host : x"),
        (b"X: y", b"Content-Length : 12"),
        (b"X: y", b"X: y\x00"),
        (b"X: y", b"X: y\rX: y"),
        (b"gzip\r\n", b"gzip\r\n\rX: y\r\n"),
        (b"X: y", b"X: y\r\r"),
        (b"X: y", b"X: y\r\n y"),
        (b"X: y", b"X: y\r\n\tTransfer-Encoding: chunked"),
        (b"\r\n\r\n", b"\r\n"),
        (b"\r\n", b"\n"),
        (b"gzip\r\n", b"gzip\n"),
        (b"gzip\r\n\r\n", b"gzip\n\n"),
        (b"gzip\r\n", b"gzip\r\n\n"),
    ],
    ids=str,
)
def test_malformed_or_ambiguous_heads_are_refused(was: bytes, is_: bytes) -> None:
    assert changed(was, is_).error == INVALID


@pytest.mark.parametrize(
    ("was", "is_", "cause"),
    [
        (b"X: y", b"Content-Length: 12", "Duplicate Content-Length"),
        (b"X: y", b"Transfer-Encoding: chunked", "Content-Length can't be present with Tr"),
        (b"gzip\r\n", b"gzip\n", "a line end other than CR LF, or a continued line"),
        (b"X: y", b"Host : x", "Invalid header token"),
        (b"X: y", b"X: y\r\n" * 100, "more than 100 headers"),
        (b"HTTP/1.1", b"HTTP/2.0", "no valid HTTP/1.0 or HTTP/1.1"),
    ],
)
def test_cause_of_an_invalid_head_names_what_is_wrong(was: bytes, is_: bytes, cause: str) -> None:
    assert changed(was, is_).cause.startswith(cause)


@pytest.mark.parametrize(
    ("was", "is_"),
    [
        (b"X: y", b"Connection: Upgrade\r\nUpgrade: websocket"),
        (b"X: y", b"Upgrade: h2c"),
        (b"X: y", b"upgrade: "),
        (b"POST /mutate?timeout=10s", b"CONNECT x:443"),
    ],
    ids=str,
)
def test_upgrades_are_refused(was: bytes, is_: bytes) -> None:
    head = changed(was, is_)
    assert head.error is not None
    assert "send no Upgrade header" in head.error


@pytest.mark.parametrize(
    ("version", "hosts", "is_valid"),
    [
        (b"1.1", b"", False),
        (b"1.1", b"Host: x\r\n", True),
        (b"1.1", b"hOsT:\r\n", True),
        (b"1.1", b"Host: x\r\nHost: x\r\n", False),
        (b"1.0", b"", True),
        (b"1.0", b"Host: x\r\n", True),
        (b"1.0", b"Host: x\r\nhost: y\r\n", False),
    ],
)
@pytest.mark.parametrize("request_", [PLAIN, PLAIN.replace(b"POST /mutate", b"PUT /preview")])
def test_head_without_host_or_with_two_is_refused(
    request_: bytes, version: bytes, hosts: bytes, is_valid: bool
) -> None:
    head = parse_head(
        request_.replace(b"Host: x\r\n", hosts).replace(b"HTTP/1.1", b"HTTP/" + version)
    )
    if is_valid:
        assert head.error is None
    else:
        assert head.error is not None
        assert head.error.startswith("A request needs exactly one Host header.")


@given(HEADS)
def test_parsing_a_head_never_raises(head: bytes) -> None:
    found = parse_head(head)
    assert not found.is_review or (found.length > 0 and found.error is None)
    assert found.cause.isprintable()


@given(HEADS | st.just(PLAIN), st.lists(st.integers(0, 300)))
def test_head_in_pieces_is_parsed_like_a_whole_head(head: bytes, cuts: list[int]) -> None:
    end = head.find(b"\r\n\r\n") + 4
    head = head[:end] if end > 3 else head
    parser = HeadParser()
    bounds = [0, *sorted(min(cut, len(head)) for cut in cuts), len(head)]
    for start, stop in itertools.pairwise(bounds):
        parser.feed(head[start:stop])
    found = parser.head()
    if end > 3:
        assert (found or parse_head(b""))._replace(cause="") == parse_head(head)._replace(cause="")


def test_malformed_head_is_found_before_its_end() -> None:
    for beginning in (b"\x16\x03\x01", b"GET / HTTP/1.1\n", b"GET / HTTX"):
        parser = HeadParser()
        parser.feed(beginning)
        found = parser.head()
        assert found is not None, beginning
        assert found.error == INVALID


@pytest.mark.parametrize("path", [b"/mutate", b"/preview"])
def test_head_with_more_headers_than_the_limit_is_refused_before_its_end(path: bytes) -> None:
    """The parser does not receive the rest, because it calls Python for each header."""
    beginning = b"POST %b HTTP/1.1\r\nHost: x\r\n" % path + b"a:\r\n" * (MAX_HEADERS - 1)
    assert parse_head(beginning + b"\r\n").error is None
    parser = HeadParser()
    for piece in (beginning, b"b:\r\n", b"c:\r\n"):
        parser.feed(piece)
    found = parser.head()
    assert found is not None
    assert found.error == INVALID
    assert parse_head(beginning + b"b:\r\n\r\n") == found


# Chunked bodies


def take(pieces: list[bytes]) -> tuple[bytes, bool]:
    body = ChunkedBody()
    return b"".join(body.take(piece) for piece in pieces), body.complete


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(min(at, len(data)) for at in cuts), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(bounds)]


CUTS = st.lists(st.integers(0, 200), max_size=20)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.binary(max_size=60), CUTS)
def test_no_byte_behind_a_chunked_body_is_forwarded(
    chunks: list[bytes], behind: bytes, cuts: list[int]
) -> None:
    parts = [b"%x;a=b\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks]
    body = b"".join(parts) + b"0\r\n"
    assert take(cut(body + b"\r\n" + behind, cuts)) == (body + b"\r\n", True)
    assert take(cut(body + b"Trailer: x\r\n\r\n" + behind, cuts)) == (body + b"\r\n", True)


@given(st.binary(max_size=200), CUTS)
def test_chunked_body_is_never_reordered_and_ends_at_most_once(
    data: bytes, cuts: list[int]
) -> None:
    whole, complete = take([data])
    assert take(cut(data, cuts)) == (whole, complete)
    assert data.startswith(whole) or (complete and data.startswith(whole.removesuffix(b"\r\n")))


def test_chunk_extension_without_end_occupies_no_memory() -> None:
    body, extension = ChunkedBody(), b";" * 1000
    tracemalloc.start()
    for _ in range(1000):
        body.take(extension)
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not body.complete
    assert used_bytes < 10_000


@pytest.mark.parametrize(("excess", "complete"), [(0, False), (1, True)])
def test_body_of_more_small_chunks_than_the_limit_is_made_invalid(
    excess: int, complete: bool
) -> None:
    """Large chunks do not count. The parser refuses the line that replaces the next size."""
    large = b"400\r\n" + b"x" * SMALL_CHUNK_BYTES + b"\r\n"
    chunks = large * 2 + b"3ff\r\n" + b"x" * 0x3FF + b"\r\n"
    chunks += b"1\r\nx\r\n" * (MAX_SMALL_CHUNKS - 1 + excess)
    invalid = b"too many small chunks\r\n" if complete else large
    assert take([chunks + large]) == (chunks + invalid, complete)
    assert take([chunks, large]) == (chunks + invalid, complete)


@given(st.integers(0, 40), CUTS)
def test_chunk_size_with_leading_zeros_is_read_as_by_the_parser(
    zeros: int, cuts: list[int]
) -> None:
    body = b"0" * zeros + b"5\r\nabcde\r\n" + b"0" * zeros + b"0\r\n\r\n"
    assert take(cut(body + b"more", cuts)) == (body, True)


@pytest.mark.parametrize("line", [b"\r\n", b"no length\r\n", b"-5\r\n", b"0x5\r\n", b" 5\r\n"])
def test_malformed_chunk_ends_the_forwarding(line: bytes) -> None:
    data = b"3\r\nabc\r\n" + line
    forwarded, complete = take([data + b"more"])
    assert complete
    assert forwarded.startswith(data[: len(forwarded)])
