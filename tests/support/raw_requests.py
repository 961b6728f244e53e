"""What the head of an HTTP request says, by a parser that shares no code with the server."""

from __future__ import annotations

import re
from typing import NamedTuple

HEAD_END = b"\r\n\r\n"
MAX_HEADERS = 100
"""A request with more headers is refused."""
_REQUEST_LINE = re.compile(rb"([!-~]+) +([!-~]+)(?: +(?:HTTP|RTSP|ICE)/(\d\.\d))?(?=\r?\n)")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]+)[^\r\n]*\r\n")
_TRAILERS = re.compile(rb"(?:[^\r\n]+\r\n)*\r\n")


class Head(NamedTuple):
    """A well-formed request line and headers."""

    method: bytes
    target: bytes
    version: bytes | None
    headers: tuple[tuple[bytes, bytes], ...]
    """The names are in lower case."""
    length: int
    """The number of bytes up to and including HEAD_END."""

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of all headers with this name."""
        return [value for found, value in self.headers if found == name]

    @property
    def content_length(self) -> int | None:
        """The only Content-Length, or None if there is not exactly one valid one."""
        values = self.values(b"content-length")
        return int(values[0]) if len(values) == 1 and re.fullmatch(rb"\d+", values[0]) else None

    @property
    def path(self) -> bytes:
        """The target without its query and fragment."""
        return re.split(rb"[?#]", self.target)[0]


def read_head(data: bytes) -> Head | None:
    """Return the first head in the data. None if it is incomplete or not well-formed."""
    text, end, _ = data.lstrip(b"\r\n").partition(HEAD_END)
    line, *lines = text.split(b"\r\n")
    request_line = _REQUEST_LINE.match(text + HEAD_END)
    headers = [_HEADER.fullmatch(line) for line in lines]
    if not end or request_line is None or request_line.end() < len(line):
        return None
    found = tuple((h[1].lower(), h[2].rstrip(b" \t")) for h in headers if h is not None)
    if len(found) < len(headers):
        return None
    method, target, version = request_line.groups()
    return Head(method, target, version, found, len(text) + len(end))


def read_version(data: bytes) -> bytes | None:
    """Return the HTTP version of the first head. None if it is incomplete or not well-formed.

    The request line may end with a line feed only.
    """
    line = _REQUEST_LINE.match(data.lstrip(b"\r\n"))
    is_complete = data[: head_length(data)].endswith(HEAD_END)
    return (line[3] or b"0.9") if line is not None and is_complete else None


def head_length(data: bytes) -> int:
    """Return the length of the first head, or of its beginning if it is incomplete.

    Empty lines in front of it belong to it.
    """
    front = len(data) - len(data.lstrip(b"\r\n"))
    end = data.find(HEAD_END, front)
    return len(data) if end < 0 else end + len(HEAD_END)


def is_plain_review(data: bytes, max_head_bytes: int) -> bool:
    """Return whether the data begins with the head of a review that is sent in the usual way.

    It is a POST of JSON to /mutate with one Host and one Content-Length, and asks for nothing
    special.
    """
    head = read_head(data)
    if head is None or head.length > max_head_bytes or len(head.headers) > MAX_HEADERS:
        return False
    types = head.values(b"content-type")
    return (
        head.method == b"POST"
        and head.path in (b"/mutate", b"/mutate/")
        and head.version == b"1.1"
        and bool(head.content_length)
        and len(head.values(b"host")) == 1
        and types != []
        and types[0].partition(b";")[0].strip().lower() == b"application/json"
        and not any(map(head.values, (b"transfer-encoding", b"expect", b"upgrade")))
    )


def count_plain_reviews(data: bytes, max_head_bytes: int) -> int | None:
    """Return the number of plain reviews in the data. The last one may be incomplete.

    Return None if the data contains anything else.
    """
    count = 0
    while data := data.lstrip(b"\r\n"):
        head = read_head(data)
        if head is None or not is_plain_review(data, max_head_bytes):
            return None
        count += 1
        data = data[head.length + (head.content_length or 0) :]
    return count


class FirstRequest(NamedTuple):
    """The extent of the first request of a stream."""

    length: int
    """The number of bytes that belong to it, including empty lines in front of it."""
    trailers: bytes = b""
    """The trailer section of a chunked body, and the empty line behind it. It may be incomplete."""


def first_request(data: bytes) -> FirstRequest | None:
    """Return the extent of the first request. None if it is incomplete or not well-formed."""
    front = len(data) - len(data.lstrip(b"\r\n"))
    head = read_head(data)
    if head is None:
        return None
    start = front + head.length
    if not head.values(b"transfer-encoding"):
        length = start + (head.content_length or 0)
        return FirstRequest(length) if length <= len(data) else None
    while start < len(data) and (size := _CHUNK_SIZE.match(data, start)) is not None:
        start = size.end()
        length = int(size[1], 16)
        if not length:
            trailers = _TRAILERS.match(data, start)
            end = trailers.end() if trailers is not None else len(data)
            return FirstRequest(end, data[start:end])
        start += length + len(b"\r\n")
    return None


def request_ends(data: bytes) -> list[int]:
    """Return where the complete requests at the beginning of the data end."""
    ends, end = [], 0
    while (first := first_request(data[end:])) is not None:
        end += first.length
        ends.append(end)
    return ends
