"""A protocol that does one thing wrong, to show that a test of the protocol can fail."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from webhook.server.connections.protocol import ReviewProtocol, ReviewServer


class Fault(NamedTuple):
    """A fault of a protocol, as a change of the bytes that it receives or writes."""

    name: str
    received: Callable[[bytes], bytes] = bytes
    written: Callable[[bytes], bytes] = bytes
    stays_open: bool = False
    """Whether the connection stays open when the protocol closes it."""


def _replace(pattern: bytes, replacement: bytes | Callable[[re.Match[bytes]], bytes]) -> Any:
    """Return a function that replaces each match."""
    return lambda data: re.sub(pattern, replacement, data)


def _add_to_length(count: int) -> Any:
    return _replace(rb"(?<=\r\ncontent-length: )\d+", lambda found: b"%d" % (int(found[0]) + count))


NO_FAULT = Fault("none")
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
    Fault("chunked accepted", received=_replace(rb"(?i)\ntransfer-encoding:", b"\nX-Coding:")),
    Fault("method ignored", received=_replace(rb"^(GET|PUT) /mutate ", b"POST /mutate ")),
    Fault("path ignored", received=_replace(rb"^POST //mutate ", b"POST /mutate ")),
    Fault("end of the connection forgotten", stays_open=True),
)


class FaultyProtocol(ReviewProtocol):
    """A protocol with a fault."""

    def __init__(self, server: ReviewServer, loop: asyncio.AbstractEventLoop, fault: Fault) -> None:
        super().__init__(server, loop)
        self._fault = fault

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_FaultyTransport(transport, self._fault))  # type: ignore[arg-type]

    def buffer_updated(self, nbytes: int) -> None:
        received = self._fault.received(bytes(self.get_buffer(-1)[:nbytes]))
        self.get_buffer(-1)[: len(received)] = received
        super().buffer_updated(len(received))


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
