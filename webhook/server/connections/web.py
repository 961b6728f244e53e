"""Connections of the web port: uvicorn's own protocol, with the bounds that it does not have.

Each connection answers one request, because the setting `headers` adds `Connection: close` to every
answer. The bounds, at each of which a connection is aborted:

- **The number of connections.** Above it, the oldest one ends.
- **One lifetime.**
- **The number of lines** in the head, in the trailers, and between chunks. h11 takes 2 µs for each
  header and 6 µs for each chunk, so 64 KiB of them would delay all reviews by 64 ms.
- **The length of head and trailers.** h11 measures them while they are incomplete, so data reaches
  it in small pieces.

This is all that is used of uvicorn beyond its settings. test_uvicorn_contract.py tests it:

- H11Protocol has the keywords `config`, `server_state` and `app_state`, and is an asyncio.Protocol.
- `Server.server_state`, and `Server.lifespan.state`, which becomes the `state` of ASGI scopes.
- `Server.startup` and `Server.shutdown` are called once each by `Server.serve`, whose list of
  sockets may be empty. `shutdown` ends the connections, and then the lifespan. It reads the setting
  `timeout_graceful_shutdown`, which may be changed until then.
- `Server.handle_exit` is the handler of SIGTERM and SIGINT while `Server.serve` runs, if that is in
  the main thread. `Server.should_exit` and `Server.force_exit` end it.
"""

from __future__ import annotations

import asyncio
import re
from io import SEEK_CUR, BytesIO
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from webhook.server.connections.request_head import MAX_HEADERS
from webhook.server.limits import Limits

_PIECE_BYTES = 8 * 1024
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,20}")
MAX_CHUNKS = 2000
"""Maximum number of chunks of a body. Clients send chunks of some KiB."""
_ALL_BYTES = 2**62
"""More than a connection transfers. BytesIO has no position from 2**63 on."""


class WebProtocol(asyncio.Protocol):
    """The bounds of a connection around uvicorn's protocol."""

    def __init__(
        self, connections: dict[WebProtocol, None], limits: Limits, **uvicorn: Any
    ) -> None:
        """Keep the connection in `connections`, those of the port, the oldest one first."""
        self._inner = H11Protocol(**uvicorn)
        self._accepted: asyncio.Transport
        self._port_connections = connections
        self._limits = limits
        self._lines_left = MAX_HEADERS + 2  # The request line, and the empty line at the end.
        self._line = b""
        """The received part of a line."""
        self._bytes_to_line = 0
        """The number of bytes before the next line: the rest of a chunk, or all after the last."""
        self._has_chunks = self._is_in_chunks = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the lifetime. Abort the oldest connection if there are too many."""
        self._inner.connection_made(transport)
        self._accepted = transport
        seconds = self._limits.web_timeout_seconds
        self._lifetime = asyncio.get_running_loop().call_later(seconds, transport.abort)
        self._port_connections[self] = None
        if len(self._port_connections) > self._limits.max_web_connections:
            oldest = next(iter(self._port_connections))
            del self._port_connections[oldest]
            oldest._accepted.abort()

    def data_received(self, data: bytes) -> None:
        """Pass data on in pieces, unless there are too many lines."""
        self._count_lines(data)
        if self._lines_left < 0:
            self._accepted.abort()
        for begin in range(0, len(data), _PIECE_BYTES):
            if not self._accepted.is_closing():
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
        self._port_connections.pop(self, None)

    def _count_lines(self, data: bytes) -> None:
        received = BytesIO(data)
        received.seek(self._bytes_to_line)
        while self._lines_left >= 0 and (piece := received.readline()):
            self._line += piece
            if piece.endswith(b"\n"):
                line, self._line = self._line[:-1].removesuffix(b"\r"), b""
                self._lines_left -= 1
                received.seek(self._bytes_after(line), SEEK_CUR)
        self._bytes_to_line = max(received.tell() - len(data), 0)

    def _bytes_after(self, line: bytes) -> int:
        """Return the number of bytes between a line and the next one.

        h11 refuses the request if the line is invalid.
        """
        if self._is_in_chunks:
            size = _CHUNK_SIZE.match(line)
            if size is not None and int(size[0], 16):
                return min(int(size[0], 16) + len(b"\r\n"), _ALL_BYTES)
            # Trailers, and an empty line.
            self._has_chunks = self._is_in_chunks = False
            self._lines_left = MAX_HEADERS + 1
        elif line:
            self._has_chunks |= line.lower().startswith(b"transfer-encoding:")
        elif self._has_chunks:
            self._is_in_chunks = True
            self._lines_left = MAX_CHUNKS
        else:
            return _ALL_BYTES
        return 0
