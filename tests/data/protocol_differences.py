"""What the port of reviews does with each request, as a table that h11 helps to look up.

Reviews get the answer of the route behind uvicorn, with these differences:

- The connection closes after an HTTP error, and after a review whose body is incomplete.
- If bytes behind a request arrive before its answer is sent, the connection closes after this
  answer. API servers do not pipeline.
- Empty lines before a head are ignored.

Probes get `ok`. All other requests are refused, where the route may answer, as `REFUSALS` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import h11

from webhook.server.limits import DEFAULT_LIMITS

HEAD_END = b"\r\n\r\n"
REVIEW, PROBE, INCOMPLETE = "review", "probe", "incomplete head"


class Sent(NamedTuple):
    """The first request of some bytes."""

    kind: str
    """REVIEW, PROBE, INCOMPLETE, or the name of a refusal."""
    data: bytes
    """The head and the body, as far as they are there."""
    is_whole: bool = False
    closes: bool = False
    """Whether the client asks for the end of the connection."""
    method: bytes = b"GET"
    """The method, as far as it matters for the answer."""


class _Head:
    """A head, and what h11 says of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.lines = data.removesuffix(HEAD_END).split(b"\r\n")
        self.error_status = 0
        self.request = h11.Request(method="GET", target="/", headers=[("Host", "x")])
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(data)
        try:
            event = connection.next_event()
            assert isinstance(event, h11.Request)
            self.request = event
        except h11.RemoteProtocolError as error:
            self.error_status = error.error_status_hint
        path = self.request.target.partition(b"?")[0]
        self.is_probe = path in (b"/livez", b"/readyz")
        self.is_review = path in (b"/mutate", b"/mutate/")

    def values(self, name: bytes) -> list[bytes]:
        return [value for found, value in self.request.headers if found == name]

    @property
    def length(self) -> int:
        return int((self.values(b"content-length") or [b"0"])[0])

    @property
    def is_json(self) -> bool:
        types = self.values(b"content-type") or [b""]
        return types[0].partition(b";")[0].strip().lower() == b"application/json"

    @property
    def has_other_line_ends(self) -> bool:
        return re.search(rb"[\r\n]", b"".join(self.lines)) is not None

    @property
    def has_ambiguous_lines(self) -> bool:
        is_continued = any(line[:1] in (b" ", b"\t") for line in self.lines[1:])
        found = re.findall(rb"(?i)^content-length:(.*)$", b"\n".join(self.lines), re.MULTILINE)
        return is_continued or b"," in b",".join(found)


def _has_bare_line_feed(data: bytes) -> bool:
    """Return whether a head has one, as far as the server reads it. It needs no end to be seen."""
    return re.search(rb"(?<!\r)\n", data[: DEFAULT_LIMITS.max_header_bytes]) is not None


REFUSALS: dict[str, tuple[int, Callable[[_Head], bool]]] = {
    "bare line feed": (400, lambda head: _has_bare_line_feed(head.data)),
    "long head": (431, lambda head: len(head.data) > DEFAULT_LIMITS.max_header_bytes),
    "other line ends": (400, lambda head: head.has_other_line_ends),
    "many headers": (431, lambda head: head.data.count(b"\n") > 102),
    "ambiguous lines": (400, lambda head: head.has_ambiguous_lines),
    "other coding": (411, lambda head: head.error_status == 501),
    "invalid": (400, lambda head: head.error_status != 0),
    "other version": (400, lambda head: head.request.http_version not in (b"1.0", b"1.1")),
    "other path": (404, lambda head: not head.is_probe and not head.is_review),
    "method of a probe": (
        405,
        lambda head: head.is_probe and head.request.method not in (b"GET", b"HEAD"),
    ),
    "body of a probe": (
        413,
        lambda head: head.is_probe and bool(head.length or head.values(b"transfer-encoding")),
    ),
    "method": (405, lambda head: head.is_review and head.request.method != b"POST"),
    "chunked": (411, lambda head: head.values(b"transfer-encoding") != []),
    "no length": (411, lambda head: head.is_review and not head.values(b"content-length")),
    "other content type": (415, lambda head: head.is_review and not head.is_json),
    "long body": (413, lambda head: head.length > DEFAULT_LIMITS.max_body_bytes),
}
"""The status of each refusal, and its condition. The first one that applies counts."""


def first_request(data: bytes) -> Sent:
    """Return the first request of some bytes, before which there is no empty line."""
    text, end, rest = data.partition(HEAD_END)
    method = b"HEAD" if text.startswith(b"HEAD ") else b"GET"
    if _has_bare_line_feed(text):
        return Sent("bare line feed", data, method=method)
    if not end and len(text) <= DEFAULT_LIMITS.max_header_bytes:
        return Sent(INCOMPLETE, data)
    head = _Head(text + end)
    if head.error_status == 0:
        method = head.request.method
    for name, (_status, applies) in REFUSALS.items():
        if applies(head):
            return Sent(name, data, method=method)
    body = rest[: head.length]
    asked = b",".join(head.values(b"connection")).lower()
    closes = head.request.http_version == b"1.0" or b"close" in asked
    kind = PROBE if head.is_probe else REVIEW
    return Sent(kind, text + end + body, len(body) == head.length, closes, method)
