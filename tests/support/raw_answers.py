"""A strict parser of HTTP answers, which takes single bytes that are wrong for what they are."""

from __future__ import annotations

import re
from typing import NamedTuple

_HEAD_END = b"\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([2-5]\d\d) [A-Z][A-Za-z -]+")
_HEADER = re.compile(rb"([a-z0-9-]+): ([\x20-\x7e]*)")
_CHUNK = re.compile(rb"([0-9a-f]+)\r\n")


class MalformedAnswerError(AssertionError):
    """Bytes of a server that are no HTTP answer."""


class Answer(NamedTuple):
    """What a client learns from an answer."""

    status: int
    content_type: str
    body: bytes
    closes: bool
    """Whether the answer has `Connection: close`."""
    interim: int = 0
    """The number of `100 Continue` in front of the answer."""


def read_answers(
    data: bytes, count: int, *, to_head: bool = False
) -> tuple[tuple[Answer, ...], bytes]:
    """Return the first complete answers in these bytes, at most `count`, and the bytes behind them.

    `to_head` says that the first request is a HEAD, whose answer has no body. Raises
    MalformedAnswerError.
    """
    answers: list[Answer] = []
    while len(answers) < count and data:
        found = _read_answer(data, to_head=to_head and not answers)
        if found is None:
            break
        answer, data = found
        answers.append(answer)
    return tuple(answers), data


def _read_answer(data: bytes, *, to_head: bool) -> tuple[Answer, bytes] | None:
    """Return the first answer in these bytes, and the bytes behind it. None if it is incomplete."""
    interim = 0
    while data.startswith(_CONTINUE):
        data = data[len(_CONTINUE) :]
        interim += 1
    head, found, rest = data.partition(_HEAD_END)
    if not found:
        return None
    status_line, *lines = head.split(b"\r\n")
    status = _STATUS_LINE.fullmatch(status_line)
    headers: dict[bytes, bytes] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None or header[1] in headers:
            raise MalformedAnswerError(f"header {line!r} in {data[:1000]!r}")
        headers[header[1]] = header[2]
    if status is None or (b"content-length" in headers) == (b"transfer-encoding" in headers):
        raise MalformedAnswerError(repr(data[:1000]))
    if to_head and int(status[1]) != 400:
        # Errors of the parser are sent to all methods with their text.
        body: tuple[bytes, bytes] | None = (b"", rest)
    elif b"content-length" in headers:
        length = int(headers[b"content-length"])
        body = (rest[:length], rest[length:]) if len(rest) >= length else None
    else:
        body = _read_chunks(rest)
    if body is None:
        return None
    content_type = headers.get(b"content-type", b"").decode()
    closes = headers.get(b"connection", b"") == b"close"
    return Answer(int(status[1]), content_type, body[0], closes, interim), body[1]


def _read_chunks(data: bytes) -> tuple[bytes, bytes] | None:
    """Return a chunked body, and the bytes behind it. None if it is incomplete."""
    body = b""
    while (size := _CHUNK.match(data)) is not None:
        length = int(size[1], 16)
        chunk, end = data[size.end() :][:length], data[size.end() + length :][:2]
        if len(end) < 2:
            return None
        if end != b"\r\n":
            raise MalformedAnswerError(f"chunk {data[:1000]!r}")
        body += chunk
        data = data[size.end() + length + 2 :]
        if not length:
            return body, data
    return None
