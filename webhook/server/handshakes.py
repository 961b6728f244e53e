"""TLS handshakes, limited in time and number.

uvicorn accepts TLS connections without such limits. A client that does not complete its handshake
would occupy memory and a file descriptor for a minute. Therefore uvicorn accepts plain connections.
This module takes the socket of each one, and passes it to `loop.connect_accepted_socket`, which
completes the handshake before the HTTP protocol gets the connection.

If there are too many handshakes, the oldest one is ended, and not the newest. Otherwise an attacker
with silent connections could lock out the API server.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from webhook.server.limits import Limits


class Handshakes:
    """The factory that uvicorn calls for the protocol of each connection."""

    def __init__(
        self,
        new_protocol: Callable[..., asyncio.Protocol],
        context: ssl.SSLContext,
        limits: Limits,
    ) -> None:
        """Use the HTTP protocol that `new_protocol` returns for uvicorn's keyword arguments."""
        self._new_protocol = new_protocol
        self._context = context
        self._limits = limits
        self._sockets: dict[asyncio.Task[None], socket.socket] = {}
        """The sockets whose handshakes are not complete, the oldest one first."""

    def __call__(self, **uvicorn: Any) -> asyncio.BaseProtocol:
        """Return the protocol of a connection that was accepted."""
        return _AcceptedProtocol(self, partial(self._new_protocol, **uvicorn))

    def begin(self, accepted: socket.socket, new_protocol: Callable[[], asyncio.Protocol]) -> None:
        """Begin the handshake on a socket. If there are too many handshakes, end the oldest."""
        task = asyncio.create_task(self._complete(accepted, new_protocol))
        self._sockets[task] = accepted
        task.add_done_callback(lambda task: self._sockets.pop(task, None))
        if len(self._sockets) > self._limits.handshakes:
            # This works in any state of the handshake: the transport reads the end of the stream.
            with suppress(OSError):
                self._sockets.pop(next(iter(self._sockets))).shutdown(socket.SHUT_RDWR)

    async def _complete(
        self, accepted: socket.socket, new_protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        # An OSError means that the client sent no valid handshake, was too slow or disconnected.
        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                new_protocol,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._limits.handshake_timeout_seconds,
                # uvloop's default is 30 s. The client may have to read its last answer first.
                ssl_shutdown_timeout=self._limits.write_timeout_seconds,
            )


class _AcceptedProtocol(asyncio.BaseProtocol):
    """The protocol of a connection until its handshake begins."""

    def __init__(
        self, handshakes: Handshakes, new_protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        self._handshakes = handshakes
        self._new_protocol = new_protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a duplicate of the socket, which outlives uvicorn's transport."""
        plain = transport.get_extra_info("socket")
        try:
            # The transport has not read from the socket yet.
            accepted = socket.fromfd(plain.fileno(), plain.family, plain.type)
        except OSError:
            return  # No file descriptor is left.
        finally:
            transport.abort()
        self._handshakes.begin(accepted, self._new_protocol)
