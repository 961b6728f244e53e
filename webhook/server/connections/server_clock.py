"""The time of the event loop's current iteration, and the response heads that contain the date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from time import monotonic, time

from webhook.server.reviews.answer import JSON_TYPE


class ServerClock:
    """The time of the event loop's current iteration, and the Date header.

    The data that an iteration reads was already queued when the iteration started. So a review's
    time in the queue counts from this start time. `loop.time()` is not the start time, because
    uvloop updates it at each call.
    """

    __slots__ = ("_second", "_wall_clock", "date", "json_head", "now")

    def __init__(self, wall_clock: Callable[[], float] = time) -> None:
        self._wall_clock = wall_clock
        self._second = -1
        self.now = 0.0
        """The start of the iteration by `time.monotonic`, or 0 if `start` must be called."""
        self.date = b""
        self.json_head = b""
        """The response head of an answer that leaves the connection open."""

    def start(self, loop: asyncio.AbstractEventLoop) -> float:
        """Set and return the start time, and update the Date header each second."""
        self.now = monotonic()
        # The loop runs this callback after it has read from all clients.
        loop.call_soon(self._end)
        second = int(self._wall_clock())
        if second != self._second:
            self._second = second
            self.date = formatdate(second, usegmt=True).encode()
            self.json_head = response_head(200, JSON_TYPE, self.date, close=False)
        return self.now

    def _end(self) -> None:
        self.now = 0.0


def response_head(status: int, content_type: bytes, date: bytes, *, close: bool) -> bytes:
    """Return a head up to the value of Content-Length, which is the last header."""
    return b"HTTP/1.1 %d %b\r\ndate: %b\r\n%bcontent-type: %b\r\ncontent-length: " % (
        status,
        HTTPStatus(status).phrase.encode(),
        date,
        b"connection: close\r\n" if close else b"",
        content_type,
    )
