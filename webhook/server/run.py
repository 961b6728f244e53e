"""Runs the server on uvicorn, with TLS only, until its graceful shutdown has finished."""

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
from webhook.server.protocol import AdmissionProtocol
from webhook.server.responses import CLOSE

if TYPE_CHECKING:
    from webhook.server.app import Application

log = logging.getLogger(__name__)

_BACKLOG = 2048
_SEND_BUFFER_BYTES = 256 * 1024
"""The send buffer of a socket. The system's default grows to megabytes for each slow client."""
_IN_FLIGHT_TIMEOUT_SECONDS = 10
"""For requests that are still in flight when the drain has finished."""


class AddressError(Exception):
    """An address that the server cannot listen on."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 selects a free port. Raises AddressError.

    `::` means all addresses of the machine, including IPv4, even on a kernel without IPv6.
    """
    both = host == "::"
    if both and not socket.has_dualstack_ipv6():
        host, both = "0.0.0.0", False  # noqa: S104
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server(
            (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both
        )
    except socket.gaierror as error:
        raise AddressError(f"cannot listen on {host}: {error.strerror}") from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise AddressError(f"cannot listen on {host} port {port}: {reason}") from None
    # Accepted connections inherit this option.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    return listener


def serve(app: Application, context: ssl.SSLContext, listener: socket.socket, drain: Drain) -> None:
    """Serve until the drain that a signal starts has finished, or until a second signal.

    `app` comes from `create_app`, with the same `drain`.
    """

    def use_context(_config: uvicorn.Config, _default: object) -> ssl.SSLContext:
        return context

    config = uvicorn.Config(
        app,
        # uvicorn only calls this argument, although its annotation requires a class.
        http=partial(AdmissionProtocol, admission=app.admission_server),  # type: ignore[arg-type]
        ssl_context_factory=use_context,
        access_log=False,
        log_config=None,
        # The client's address is not used, so headers of proxies are not read.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=app.limits.idle_timeout_seconds,
        timeout_graceful_shutdown=_IN_FLIGHT_TIMEOUT_SECONDS,
        ws="none",
    )
    tune_gc_for_server()
    server = _Server(config, drain)
    app.state.in_flight.tasks = server.server_state.tasks
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=[listener]))


class _Server(uvicorn.Server):
    """A uvicorn server that drains after a signal. uvicorn's own closes its port at once."""

    def __init__(self, config: uvicorn.Config, drain: Drain) -> None:
        super().__init__(config)
        self._drain = drain
        self._draining = False

    def handle_exit(self, _sig: int, _frame: FrameType | None) -> None:
        """Start the drain. Exit at once after a second signal.

        Logs nothing, because the signal may have interrupted a thread that writes to the log.
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
            # uvicorn, the application and the protocol all send these headers with every answer.
            self.config.encoded_headers.append(CLOSE)
            self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        if not self._drain.finished():
            return False
        # If the loop was busy until now, reviews may wait unread. One iteration reads them, so that
        # their connections do not count as idle.
        await asyncio.sleep(0)
        return self._drain.finished()
