"""Connections of the web port: uvicorn's own protocol, behind the bounds that it does not have.

Each connection answers one request, because the setting `headers` adds `Connection: close` to every
answer. What the bounds are:

- **The number of connections.** Above it, the oldest one is aborted.
- **One lifetime**, at the end of which the connection is aborted.
- **The head and the trailers.** h11 measures an incomplete head only, so data reaches it in small
  pieces. It takes 2 µs for each header, so the headers of the head are counted.
- **The number of chunks.** h11 takes 6 µs for each, so 64 KiB of small chunks would delay all
  reviews by 64 ms.

This is all that is used of uvicorn beyond its settings. test_uvicorn_contract.py tests it:

- H11Protocol has the keywords `config`, `server_state` and `app_state`, and is an asyncio.Protocol.
- `Server.server_state`, and `Server.lifespan.state`, which becomes the `state` of ASGI scopes.
- `Server.startup` and `Server.shutdown` are called once each by `Server.serve`, whose list of
  sockets may be empty. `shutdown` ends the connections, and then the lifespan.
- `Server.should_exit` and `Server.force_exit`.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from webhook.server.connections.request_head import MAX_HEADERS
from webhook.server.limits import Limits

_PIECE_BYTES = 8 * 1024
MAX_CHUNKS = 2000
"""Maximum number of chunks of a body. A chunk has two carriage returns, which are counted, and JSON
and YAML have usually none. Clients send chunks of some KiB."""
_HEAD_END = re.compile(rb"\n\r?\n")
"""The end of a head, as h11 finds it."""


class WebProtocol(asyncio.Protocol):
    """The bounds of a connection around uvicorn's protocol."""

    def __init__(
        self, connections: dict[WebProtocol, None], limits: Limits, **uvicorn: Any
    ) -> None:
        """Keep the connection in `connections`, those of the port, the oldest one first."""
        self._inner = H11Protocol(**uvicorn)
        self._transport: asyncio.Transport
        self._open = connections
        self._limits = limits
        self._head: bytes | None = b""
        """The received part of the head, or None if it is complete."""
        self._chunk_lines: int | None = None
        """The number of carriage returns in a chunked body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the lifetime. Abort the oldest connection if there are too many."""
        self._transport = transport
        self._inner.connection_made(transport)
        seconds = self._limits.web_timeout_seconds
        self._lifetime = asyncio.get_running_loop().call_later(seconds, transport.abort)
        self._open[self] = None
        if len(self._open) > self._limits.max_web_connections:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass data on in pieces, unless there are too many headers or chunks."""
        body = data
        if self._head is not None:
            self._head += data
            found = _HEAD_END.search(self._head)
            head = self._head[: found.end()] if found else self._head
            body = self._head[len(head) :]
            if head.count(b"\n") > MAX_HEADERS + 2:
                self._transport.abort()
            if found:
                self._head = None
                self._chunk_lines = 0 if b"\ntransfer-encoding:" in head.lower() else None
        if self._chunk_lines is not None:
            self._chunk_lines += body.count(b"\r")
            if self._chunk_lines > 2 * MAX_CHUNKS:
                self._transport.abort()
        for begin in range(0, len(data), _PIECE_BYTES):
            if not self._transport.is_closing():
                self._inner.data_received(data[begin : begin + _PIECE_BYTES])

    def eof_received(self) -> None:
        """Pass the event on."""
        self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass the event on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass the event on."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._inner.connection_lost(exc)
        self._lifetime.cancel()
        self._open.pop(self, None)
