"""Answers to requests on /mutate that are no AdmissionReview, and how answers are sent."""

from __future__ import annotations

from typing import NamedTuple

JSON_TYPE = b"application/json"
TEXT_TYPE = b"text/plain; charset=utf-8"


class Refusal(NamedTuple):
    """An HTTP error, and what was wrong. The connection closes after it."""

    status: int
    text: str
    allow: bytes = b""
    """The value of the header Allow, for the status 405."""
