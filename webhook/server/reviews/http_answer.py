"""The answer to a request to /mutate, in the form that the FastAPI route and the protocol send."""

from __future__ import annotations

from typing import NamedTuple

JSON_TYPE = b"application/json"
TEXT_TYPE = b"text/plain; charset=utf-8"
PIECE_BYTES = 64 * 1024
"""Longer answers are written in pieces, so that back-pressure applies. A longer answer in one piece
would occupy the write buffers twice, as plain text and as encrypted data."""


class HttpAnswer(NamedTuple):
    """A status, a body, and what the headers must say about them."""

    status: int
    body: bytes
    content_type: bytes
    close: bool
    """Whether the answer needs `Connection: close`."""


class RefusedError(Exception):
    """A request that gets an HTTP error instead of an AdmissionReview."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def refusal(status: int, message: str, *, close: bool = False) -> HttpAnswer:
    """Return an HTTP error with a one-line message as plain text."""
    return HttpAnswer(status, f"{message}\n".encode(), TEXT_TYPE, close)
