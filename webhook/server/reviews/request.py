"""What a request to /mutate looks like, its deadline, and how one is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import parse_qs

from webhook.core.durations import parse_duration

ADMISSION_PATHS = ("/mutate", "/mutate/")

_MAX_QUERY_BYTES = 256
"""Query bytes after this number are ignored. A query from an API server has only a timeout."""

_ANSWER_SHARE = 0.7
"""The share of the API server's timeout (`?timeout=2s`) within which podsettle answers. The rest of
the timeout is for the network and for the API server itself."""
_DEFAULT_TIMEOUT_MS = 10_000
"""The default of `timeoutSeconds` in a webhook configuration."""
_MAX_TIMEOUT_MS = 30_000
"""The maximum of `timeoutSeconds` in a webhook configuration."""


class Refusal(NamedTuple):
    """An HTTP error, and what was wrong. The connection closes after it."""

    status: int
    text: str
    allow: bytes = b""
    """The value of the header Allow, for the status 405."""


def body_too_long(max_bytes: int) -> Refusal:
    """Return the refusal of a body that is longer than the maximum."""
    return Refusal(413, f"The body is longer than {max_bytes} bytes.")


def is_json(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the Content-Type is JSON. The names of `headers` must be in lower case."""
    for name, value in headers:
        if name == b"content-type":
            return value.partition(b";")[0].strip().lower() == b"application/json"
    return False


def answer_seconds(query: bytes) -> float:
    """Return the number of seconds within which podsettle must answer a request with this query."""
    timeouts = parse_qs(query[:_MAX_QUERY_BYTES].decode("latin-1")).get("timeout", ())
    try:
        timeout = min(parse_duration(timeouts[0]), _MAX_TIMEOUT_MS) if timeouts else 0
    except ValueError:
        timeout = 0
    return (timeout or _DEFAULT_TIMEOUT_MS) / 1000 * _ANSWER_SHARE
