"""Heads: which requests are answered, which are refused, and that the cache changes neither."""

from __future__ import annotations

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.examples import examples
from webhook.server.connections import request_head
from webhook.server.connections.request_head import (
    HEAD_END,
    MAX_CACHED_HEAD_BYTES,
    MAX_HEADERS,
    RequestHead,
    read_head,
)

PLAIN = (
    b"POST /mutate?timeout=10s HTTP/1.1\r\nHost: x\r\nX: y\r\nContent-Length: 12\r\n"
    b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)
PROBE = b"GET /livez HTTP/1.1\r\nHost: x\r\nX: y\r\n\r\n"
REVIEW = RequestHead(length=12, deadline_seconds=7.0)
LENGTH = b"Content-Length: 12"


def changed(was: bytes, is_: bytes, head: bytes = PLAIN) -> RequestHead:
    """Return what a head with a change says. It says the same again, from the cache."""
    assert was in head
    text = head.replace(was, is_, 1)
    found = read_head(text)
    assert read_head(text) == found
    return found


@pytest.mark.parametrize(
    ("was", "is_", "fields"),
    [
        (b"", b"", {}),
        (b"?timeout=10s", b"/", {}),
        (b"timeout=10s", b"timeout=2s", {"deadline_seconds": 1.4}),
        (LENGTH, b"Content-Length: 0", {"length": 0}),
        (LENGTH, b"Content-Length: 0012", {}),
        (LENGTH, b"Content-Length:12", {}),
        (LENGTH, b"content-length:\t12 ", {}),
        (LENGTH, b"Content-Length: 9999999999", {"length": 9_999_999_999}),
        (LENGTH, b"Content-Length: 99999999999", {"length": 99_999_999_999}),
        (b"Content-Type", b"cOnTeNt-TyPe", {}),
        (b"application/json", b"Application/JSON; charset=utf-8", {}),
        (b"HTTP/1.1", b"HTTP/1.0", {"close": True}),
        (b"HTTP/1.1\r\nHost: x", b"HTTP/1.0\r\nConnection: keep-alive", {"close": True}),
        (b"X: y", b"Connection: keep-alive, Close", {"close": True}),
        (b"X: y", b"Connection: keep-alive", {}),
        (b"X: y", b"Expect: 100-continue", {"waits": True}),
        (b"HTTP/1.1", b"HTTP/1.0\r\nExpect: 100-continue", {"close": True}),
        (b"X: y", b"Connection: Upgrade\r\nUpgrade: h2c", {}),
        (b"X: y", b"a:\r\n" * (MAX_HEADERS - 5) + b"b:", {}),
        (b"X: y", b"X: " + b"y" * MAX_CACHED_HEAD_BYTES, {}),
    ],
    ids=str,
)
def test_head_of_a_review_says_how_to_read_it(
    was: bytes, is_: bytes, fields: dict[str, object]
) -> None:
    found, expected = changed(was, is_), REVIEW._replace(**fields)  # type: ignore[arg-type]
    assert found.deadline_seconds == pytest.approx(expected.deadline_seconds)
    assert found._replace(deadline_seconds=0) == expected._replace(deadline_seconds=0)


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("target", [b"/livez", b"/readyz", b"/readyz?verbose"])
def test_head_of_a_probe_has_its_path(method: bytes, target: bytes) -> None:
    found = changed(b"GET /livez", method + b" " + target, PROBE)
    assert found.probe == target.partition(b"?")[0]
    assert found.is_head is (method == b"HEAD")
    assert found.refusal is None


OTHER_PATHS = (
    b"//mutate", b"/mutate/x", b"/%6dutate", b"/metrics", b"https://x/mutate", b"/livez/", b"*"
)  # fmt: skip
REFUSED = {
    400: (
        *((b"Length: 12", b"Length: " + value) for value in (
            b"-12", b"+12", b"0x12", b"1_2", b"", b"12, 13", b"9" * 5000, "٣".encode())),
        (LENGTH, LENGTH + b", 12"),
        (LENGTH, b"content-length:12 ,12"),
        (LENGTH, LENGTH + b"\r\nContent-Length: 12"),
        (LENGTH, b"content-length: 13\r\n" + LENGTH),
        (LENGTH, LENGTH + b"\r\nCONTENT-LENGTH:13"),
        (b"HTTP/1.1", b"HTTP/0.9"),
        (b"HTTP/1.1", b"HTTP/2.0"),
        (b" HTTP/1.1", b""),
        (b"Host: x\r\n", b""),
        (b"X: y", b"Host: x"),
        (b"X: y", b"Ho st: x"),
        (b"X: y", b"X : y"),
        (LENGTH, b"Content-Length : 12"),
        (b"X: y", b"X: y\x00"),
        (b"X: y", b"X: y\rX: y"),
        (b"gzip\r\n", b"gzip\r\n\rX: y\r\n"),
        (b"X: y", b"X: y\r\r"),
        (b"X: y", b"X: y\r\n y"),
        (b"X: y", b"X: y\r\n\tTransfer-Encoding: chunked"),
        (b"\r\n", b"\n"),
        (b"gzip\r\n", b"gzip\n"),
        (b"gzip\r\n", b"gzip\r\n\n"),
        (b"POST ", b"POST\t"),
    ),
    404: tuple((b"/mutate?timeout=10s", path) for path in OTHER_PATHS),
    405: tuple((b"POST", method) for method in (b"PUT", b"GET", b"HEAD", b"OPTIONS", b"post")),
    411: (
        (LENGTH, b"X: 12"),
        (LENGTH, b"Transfer-Encoding: chunked"),
        (LENGTH, b"Transfer-Encoding: gzip, chunked"),
        (b"X: y", b"Transfer-Encoding: chunked"),
        (b"X: y", b"transfer-encoding: identity"),
    ),
    415: (
        (b"application/json", b"text/plain"),
        (b"application/json", b"application/json-patch"),
        (b"Content-Type", b"Content-Typo"),
    ),
    431: ((b"X: y", b"a:\r\n" * (MAX_HEADERS - 4) + b"b:"),),
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "was", "is_"), [(status, *each) for status in REFUSED for each in REFUSED[status]]
)
def test_other_heads_are_refused(status: int, was: bytes, is_: bytes) -> None:
    found = changed(was, is_)
    assert found.refusal is not None
    assert found.refusal.status == status
    assert found.refusal.allow == (b"POST" if status == 405 else b"")
    assert bool(found.cause) is (status == 400)
    assert found.is_head is (is_ == b"HEAD")
    text = PLAIN.replace(was, is_, 1)
    if text.startswith(b"POST "):
        assert changed(b"POST", b"HEAD", text).is_head


@pytest.mark.parametrize(
    ("was", "is_", "status"),
    [
        (b"GET", b"POST", 405),
        (b"X: y", b"Content-Length: 5", 413),
        (b"X: y", b"Transfer-Encoding: chunked", 413),
        (b"GET /livez", b"CONNECT x:443", 404),
    ],
)
def test_other_request_than_a_probe_is_refused(was: bytes, is_: bytes, status: int) -> None:
    refusal = changed(was, is_, PROBE).refusal
    assert refusal is not None
    assert refusal.status == status
    assert refusal.allow == (b"GET, HEAD" if status == 405 else b"")


def test_only_short_heads_are_cached_and_their_lengths_are_no_part_of_the_key() -> None:
    request_head._parse_cached.cache_clear()
    for length in (1, 12, 999):
        assert changed(b"12", b"%d" % length).length == length
        changed(b"X: y", b"X: " + b"y" * MAX_CACHED_HEAD_BYTES)
        changed(b"", b"", PROBE)
    assert request_head._parse_cached.cache_info().currsize == 1


LINES = st.sampled_from(
    (b"Host: x", b"Host: x", b"X: y", LENGTH, b"Content-Length: 3", b"content-length: 12",
     b"Content-Length: 0", b"Content-Length: 12, 12", b"Content-Length:  7", b" folded",
     b"Content-Type: application/json", b"Content-Type: application/json", b"Connection: close",
     b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Upgrade: h2c", b"no header")
)  # fmt: skip
ENDS = st.sampled_from((b"\r\n",) * 20 + (b"\n", b"\r", b"\n\r\n", b"\r\r\n"))
STARTS = st.sampled_from(
    (b"POST /mutate HTTP/1.1",) * 4
    + (b"POST /mutate?timeout=1s HTTP/1.0", b"GET /livez HTTP/1.1", b"HEAD /readyz HTTP/1.1",
       b"PUT /mutate/ HTTP/1.1", b"POST /livez HTTP/1.1", b"POST x HTTP/1.1", b"POST /mutate")
)  # fmt: skip
HEADS = st.builds(
    lambda start, end, lines: start + end + b"".join(map(b"".join, lines)) + b"\r\n",
    STARTS,
    ENDS,
    st.lists(st.tuples(LINES, ENDS), max_size=8),
)


@examples(1000)
@given(HEADS | st.binary(max_size=300).map(lambda text: text.lstrip(b"\r\n")))
@example(PLAIN.replace(b"12", b"9" * 5000))
def test_any_head_is_read_as_h11_reads_it(text: bytes) -> None:
    text = text.partition(HEAD_END)[0] + HEAD_END
    found = read_head(text)
    assert found.cause.isprintable()
    uncached = request_head._parse(text)
    assert (found.refusal, found._replace(cause="")) == (
        uncached.refusal,
        uncached._replace(cause=""),
    )
    if found.refusal is not None:
        return
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(text)
    request = connection.next_event()
    assert isinstance(request, h11.Request)
    headers = list(request.headers)
    lengths = [value for name, value in headers if name == b"content-length"]
    assert len(lengths) <= 1
    assert [found.length] == [int(value) for value in lengths or [b"0"]]
    assert b"transfer-encoding" not in dict(headers)
    if found.probe:
        assert request.method in (b"GET", b"HEAD")
        assert found.length == 0
    else:
        assert (request.method, request.target[:7], len(lengths)) == (b"POST", b"/mutate", 1)
    # h11 asks for exactly the bytes of the body.
    connection.receive_data(b"x" * found.length)
    events = []
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data)
        events.append(bytes(event.data))
    assert len(b"".join(events)) == found.length
    assert found.close or connection.their_state is not h11.MUST_CLOSE
