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

from webhook.server.connections.failed_handshakes import FailedHandshakes
from webhook.server.limits import Limits
from webhook.server.metric_labels import HandshakeFailure


class Handshakes:
    """The factory that uvicorn calls for the protocol of each connection."""

    def __init__(
        self,
        new_protocol: Callable[..., asyncio.Protocol],
        context: ssl.SSLContext,
        limits: Limits,
        failed: FailedHandshakes,
    ) -> None:
        """Use the HTTP protocol that `new_protocol` returns for uvicorn's keyword arguments."""
        self._new_protocol = new_protocol
        self._context = context
        self._limits = limits
        self._failed = failed
        self._sockets: dict[socket.socket, object] = {}
        """The sockets whose handshakes are not complete, with the addresses of their clients. The
        oldest one is the first."""
        self._tasks: set[asyncio.Task[None]] = set()
        """Keeps the tasks from being garbage collected."""

    def __call__(self, **uvicorn: Any) -> asyncio.BaseProtocol:
        """Return the protocol of a connection that was accepted."""
        return _AcceptedProtocol(self, partial(self._new_protocol, **uvicorn))

    def begin(self, accepted: socket.socket, new_protocol: Callable[[], asyncio.Protocol]) -> None:
        """Begin the handshake on a socket. If there are too many handshakes, end the oldest."""
        try:
            self._sockets[accepted] = accepted.getpeername()
        except OSError:
            # The client has disconnected. The handshake finds that out.
            self._sockets[accepted] = None
        task = asyncio.create_task(self._complete(accepted, new_protocol))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if len(self._sockets) > self._limits.max_handshakes:
            self._end_oldest()

    def _end_oldest(self) -> None:
        oldest = next(iter(self._sockets))
        address = self._sockets.pop(oldest)
        # This works in any state of the handshake: the transport reads the end of the stream.
        with suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)
        self._failed.record(
            address,
            HandshakeFailure.TOO_MANY,
            f"{self._limits.max_handshakes} newer ones were in progress",
        )

    async def _complete(
        self, accepted: socket.socket, new_protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                new_protocol,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._limits.handshake_timeout_seconds,
                # uvloop's default is 30 s. The client may have to read its last answer first.
                ssl_shutdown_timeout=self._limits.write_timeout_seconds,
            )
        except OSError as error:
            # An ended handshake is recorded already.
            if accepted in self._sockets:
                self._failed.record_error(self._sockets[accepted], error)
        finally:
            self._sockets.pop(accepted, None)


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
