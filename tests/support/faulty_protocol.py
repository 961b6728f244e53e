"""A protocol that does one thing wrong, to show that a test of the protocol can fail."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _unchanged(data: bytes) -> bytes:
    return data


@dataclass(frozen=True)
class Fault:
    """A fault of a protocol, as a change of the bytes that it receives or writes."""

    name: str
    received: Callable[[bytes], bytes] = _unchanged
    written: Callable[[bytes], bytes] = _unchanged
    stays_open: bool = False
    """Whether the connection stays open when the protocol closes it."""


def _replace(pattern: bytes, replacement: bytes | Callable[[re.Match[bytes]], bytes]) -> Any:
    """Return a function that replaces each match."""
    return lambda data: re.sub(pattern, replacement, data)


def _add_to_length(count: int) -> Any:
    return _replace(rb"(?<=\r\ncontent-length: )\d+", lambda found: b"%d" % (int(found[0]) + count))


FAULTS = (
    Fault("Content-Length too large", written=_add_to_length(1)),
    Fault("Content-Length too small", written=_add_to_length(-1)),
    Fault("no Connection header", written=_replace(rb"\r\nconnection: close", b"")),
    Fault(
        "Connection header too often",
        written=_replace(rb" OK\r\n", b" OK\r\nconnection: close\r\n"),
    ),
    Fault("other content type", written=_replace(rb"text/plain; charset=utf-8", b"text/plain")),
    Fault("other status", written=_replace(rb"^HTTP/1.1 408", b"HTTP/1.1 400")),
    Fault("other text", written=_replace(rb"not an AdmissionReview", b"NOT an AdmissionReview")),
    Fault("bare line feed accepted", received=_replace(rb"(?<!\r)\n", b"\r\n")),
    Fault("Upgrade ignored", received=_replace(rb"(?i)\nupgrade:", b"\nX-Upgrade:")),
    Fault("Expect ignored", received=_replace(rb"(?i)\nexpect:", b"\nX-Expect:")),
    Fault("method ignored", received=_replace(rb"^(GET|PUT) /mutate ", b"POST /mutate ")),
    Fault("end of the connection forgotten", stays_open=True),
)


class FaultyProtocol(asyncio.Protocol):
    """A protocol with a fault."""

    def __init__(self, protocol: Callable[..., asyncio.Protocol], fault: Fault, **uvicorn: Any):
        self._fault = fault
        self._inner = protocol(**uvicorn)

    def connection_made(self, transport: Any) -> None:
        self._inner.connection_made(_FaultyTransport(transport, self._fault))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(self._fault.received(data))

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)


class _FaultyTransport:
    """A transport that changes what is written."""

    def __init__(self, transport: asyncio.Transport, fault: Fault) -> None:
        self._transport = transport
        self._fault = fault

    def write(self, data: bytes) -> None:
        self._transport.write(self._fault.written(data))

    def close(self) -> None:
        if not self._fault.stays_open:
            self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
