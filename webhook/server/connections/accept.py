"""The accept loop of both ports, which bounds TLS handshakes, and therefore accepts by itself.

asyncio and uvicorn do not bound the number of handshakes. If there are too many, the oldest one is
ended, and not the newest. Otherwise an attacker with silent connections could lock out the API
server.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from webhook.limited_log import LimitedLog
from webhook.server.limits import Limits

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.1
"""Time until the next attempt, if no file descriptor or memory is left for a connection."""
_LOG_SECONDS = 10.0
"""Minimum time between two lines about client certificates."""


async def accept_connections(
    listener: socket.socket,
    context: ssl.SSLContext,
    new_protocol: Callable[[], asyncio.BaseProtocol],
    max_handshakes: int,
    limits: Limits,
) -> None:
    """Accept connections until cancelled. Each gets a protocol after its TLS handshake.

    Then close the listener and end the handshakes that are in progress.
    """
    loop = asyncio.get_running_loop()
    handshakes: dict[socket.socket, asyncio.Task[None]] = {}
    """The handshakes in progress. The oldest one is the first."""
    refused = LimitedLog(log, seconds=_LOG_SECONDS, clock=loop.time)

    async def complete(accepted: socket.socket, client: object) -> None:
        try:
            await loop.connect_accepted_socket(
                new_protocol,
                accepted,
                ssl=context,
                ssl_handshake_timeout=limits.handshake_timeout_seconds,
                # uvloop's default is 30 s. The client may have to read its last answer first.
                ssl_shutdown_timeout=limits.write_timeout_seconds,
            )
        except ssl.SSLCertVerificationError as error:
            # An API server whose certificate is refused creates pods without podsettle.
            refused.warning(
                f"TLS handshake with {client} failed: the certificate of the client is refused: "
                f"{error.verify_message}; is it signed by the CA in --client-ca?"
            )
        except OSError as error:
            log.debug("TLS handshake with %s failed: %s", client, error)
        finally:
            handshakes.pop(accepted, None)

    listener.setblocking(False)
    with listener:
        try:
            while True:
                try:
                    accepted, client = await loop.sock_accept(listener)
                except OSError:
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                handshakes[accepted] = loop.create_task(complete(accepted, client))
                if len(handshakes) > max_handshakes:
                    oldest = next(iter(handshakes))
                    del handshakes[oldest]  # Its task holds the connection until it has ended.
                    # This works in any state of the handshake: the transport reads the end.
                    with suppress(OSError):
                        oldest.shutdown(socket.SHUT_RDWR)
        finally:
            for task in handshakes.values():
                task.cancel()
