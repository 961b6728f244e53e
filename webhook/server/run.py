"""The server process: uvicorn with TLS and a graceful shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from webhook.process_memory import tune_gc_for_server
from webhook.server.drain import Drain
from webhook.server.handshakes import Handshakes
from webhook.server.protocol import AdmissionProtocol
from webhook.server.responses import CLOSE

if TYPE_CHECKING:
    from webhook.server.app import Application

log = logging.getLogger(__name__)

_BACKLOG = 2048
"""Maximum number of connections that wait to be accepted. It is uvicorn's default."""
_SEND_BUFFER_BYTES = 256 * 1024
"""Size of a socket's send buffer. By default, the kernel grows it to megabytes for slow clients."""
_RECEIVE_BUFFER_BYTES = 32 * 1024
"""Size of a socket's receive buffer. For each connection, uvloop keeps several times the memory of
what it once received at a time: up to 1.1 MiB by default, and up to 0.3 MiB with this size."""
_IN_FLIGHT_TIMEOUT_SECONDS = 10
"""Time limit for requests that are still in flight when the drain has finished."""


class AddressError(Exception):
    """An address that the server cannot listen on."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 selects a free port. Raises AddressError.

    `::` means all addresses of the machine, including IPv4, even on a kernel without IPv6.
    """
    dual_stack = host == "::"
    if dual_stack and not socket.has_dualstack_ipv6():
        host, dual_stack = "0.0.0.0", False  # noqa: S104
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server(
            (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=dual_stack
        )
    except socket.gaierror as error:
        raise AddressError(f"cannot listen on {host}: {error.strerror}") from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise AddressError(f"cannot listen on {host} port {port}: {reason}") from None
    # Accepted connections inherit these options.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    return listener


def serve(app: Application, context: ssl.SSLContext, listener: socket.socket, drain: Drain) -> None:
    """Serve until the process must exit.

    The first signal starts the drain. The server exits when the drain has finished, or at the
    second signal. Pass the same `drain` here and to `create_app`, which returns `app`.
    """

    new_protocol = partial(AdmissionProtocol, admission=app.admission_server)
    config = uvicorn.Config(
        app,
        # The annotation requires a class, but uvicorn accepts any callable that returns a protocol.
        http=Handshakes(new_protocol, context, app.limits),  # type: ignore[arg-type]
        access_log=False,
        log_config=None,
        # podsettle does not use the client's address, so it does not need X-Forwarded-For.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=app.limits.idle_timeout_seconds,
        timeout_graceful_shutdown=_IN_FLIGHT_TIMEOUT_SECONDS,
        ws="none",
    )
    tune_gc_for_server()
    server = _Server(config, drain)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=[listener]))


class _Server(uvicorn.Server):
    """A uvicorn server that drains after a signal.

    Without this class, uvicorn closes its port immediately after a signal.
    """

    def __init__(self, config: uvicorn.Config, drain: Drain) -> None:
        super().__init__(config)
        self._drain = drain
        self._draining = False

    def handle_exit(self, _sig: int, _frame: FrameType | None) -> None:
        """Start the drain. Exit immediately after a second signal.

        This method must not log, because the signal may have interrupted a call of the logger.
        """
        if self._drain.started:
            self.should_exit = self.force_exit = True
        self._drain.start()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to exit. uvicorn calls this ten times a second."""
        if await super().on_tick(counter):
            return True
        if self._drain.started and not self._draining:
            self._draining = True
            log.info(
                "shutting down: exit after %g s without reviews, at most %g s; "
                "send the signal again to exit now",
                self._drain.idle_seconds,
                self._drain.timeout_seconds,
            )
            # Every answer contains default_headers, which uvicorn builds from encoded_headers each
            # second. Both change, so that the next answer already has the header.
            self.config.encoded_headers.append(CLOSE)
            self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        if not self._drain.finished():
            return False
        # If the event loop was busy until now, sockets may contain reviews that have not been read.
        # One iteration of the loop reads them, so that they restart the drain's idle time.
        await asyncio.sleep(0)
        return self._drain.finished()
