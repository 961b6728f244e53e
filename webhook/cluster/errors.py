"""Errors of requests to the API server, and their texts."""

from __future__ import annotations

import os
import ssl
from contextlib import suppress

import aiohttp
import msgspec

from webhook.core.pod import DECODE_ERRORS
from webhook.core.printable import cut

# Longer than the API server's messages about invalid objects with many faults.
_MAX_MESSAGE_CHARACTERS = 4000


class ApiError(Exception):
    """An error response of the API server: its HTTP status and message."""

    def __init__(self, status: int, message: str, next_page: str = "") -> None:
        super().__init__(f"{status}: {cut(message, _MAX_MESSAGE_CHARACTERS)}")
        self.status = status
        self.next_page = next_page
        """The token with which a list continues whose version has expired (410). May be empty."""


class Unreachable(Exception):  # noqa: N818
    """A request that got no usable response, or a missing configuration of the API server."""


class TooLargeError(Unreachable):
    """A response with more bytes than the caller accepts."""


class NoClusterError(Unreachable):
    """A configuration that names no API server. To retry would not help."""


def describe(error: Exception) -> str:
    """Return the reason for a failed request, with the server's address if it is known."""
    if isinstance(error, aiohttp.ClientConnectorError):
        # aiohttp's own message also contains its TLS settings.
        cause = error.os_error
        is_system_error = not isinstance(cause, ssl.SSLError) and (cause.errno or 0) > 0
        reason = os.strerror(cause.errno or 0).lower() if is_system_error else str(cause)
        return f"{error.host}:{error.port}: {reason}"
    if isinstance(error, aiohttp.ClientPayloadError):
        # aiohttp's own message looks like an HTTP status 400.
        return "the response is incomplete"
    if isinstance(error, aiohttp.TooManyRedirects):
        return "too many redirects"
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    return str(error) or type(error).__name__


def status_message(content: bytes) -> str:
    """Return the message of a Kubernetes `Status`, or the beginning of a body that is not JSON."""
    try:
        status = msgspec.json.decode(content)
    except DECODE_ERRORS:
        return content[:200].decode(errors="replace").strip()
    message = status.get("message", status) if isinstance(status, dict) else status
    return cut(str(message), _MAX_MESSAGE_CHARACTERS)


def token_of(content: bytes) -> str:
    """Return the token in an answer, with which an expired list continues. It may be empty."""
    with suppress(*DECODE_ERRORS, LookupError, TypeError):
        return str(msgspec.json.decode(content)["metadata"]["continue"] or "")
    return ""


def is_of_api_server(content: bytes) -> bool:
    """Return whether the body of an error is one of an API server, and not of a proxy or a page.

    It is a `Status`, or Go's text for a path that no API has.
    """
    with suppress(*DECODE_ERRORS, AttributeError):
        return bool(msgspec.json.decode(content).get("kind") == "Status")
    return content.startswith(b"404 page not found")
