"""Errors of calls to the API server, and their texts."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping

import aiohttp
import msgspec


class ApiError(Exception):
    """What the API server refused: an HTTP status and its message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Unreachable(Exception):  # noqa: N818
    """No answer from the API server, or no way to tell where it is."""


class NoClusterError(Unreachable):
    """Nothing says where an API server is: trying again makes no sense."""


def describe(error: Exception) -> str:
    """What is wrong with a connection, in words that say where it was to go."""
    if isinstance(error, aiohttp.ClientConnectorError):
        # aiohttp's own words tell of its TLS settings, too.
        cause = error.os_error
        of_the_system = not isinstance(cause, ssl.SSLError) and (cause.errno or 0) > 0
        why = os.strerror(cause.errno or 0).lower() if of_the_system else str(cause)
        return f"{error.host}:{error.port}: {why}"
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    return str(error) or type(error).__name__


def status_message(content: bytes) -> str:
    """Return the message of a `Status` object, or the start of a body that is none."""
    try:
        status = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return content[:200].decode(errors="replace")
    return str(status.get("message", status)) if isinstance(status, Mapping) else str(status)
