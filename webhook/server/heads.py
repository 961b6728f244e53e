"""The heads of answers that are written without an ASGI cycle."""

from __future__ import annotations

from typing import NamedTuple

from webhook.server.answers import CLOSE, JSON, Header


class Head(NamedTuple):
    """Of an answer with a review."""

    text: bytes
    """Up to the length of the body, which comes last."""
    closes: bool
    """Whether it says that the connection ends."""


class Heads:
    """The head for each list of headers, made when the list is another one.

    uvicorn makes a new list every second, for the date, and never changes one.
    """

    __slots__ = ("_head", "_headers")

    def __init__(self) -> None:
        self._headers: list[Header] | None = None
        self._head: Head

    def of(self, headers: list[Header]) -> Head:
        """The head with these headers."""
        if headers is not self._headers:
            lines = [b"%b: %b\r\n" % header for header in (*headers, JSON)]
            text = b"HTTP/1.1 200 OK\r\n%bcontent-length: " % b"".join(lines)
            self._head = Head(text, CLOSE in headers)
            self._headers = headers
        return self._head
