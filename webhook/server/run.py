"""Run the server: TLS only, on uvicorn with uvloop and httptools, until it is drained."""

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
_UNREAD = 256 * 1024
"""Bytes of answers that the system holds for a client; it would let each of them have megabytes."""
IDLE_TIMEOUT_SECONDS = 120
"""Seconds for an idle connection. One of the API server lives for 90 s (kubernetes client-go
transport); closing it sooner races with the next review on it."""


class AddressError(Exception):
    """An address that cannot be listened on."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 finds a free one. Raises AddressError.

    `::` is every address of this machine, IPv4 too, also where there is no IPv6.
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
    # Connections have it from here.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD)
    return listener


def serve(app: Application, context: ssl.SSLContext, listener: socket.socket, drain: Drain) -> None:
    """Serve until a signal came and `drain` is over, or a second signal came.

    `app` is one of `create_app`, with the same `drain`.
    """

    def use_context(_config: uvicorn.Config, _default: object) -> ssl.SSLContext:
        return context

    config = uvicorn.Config(
        app,
        # uvicorn calls it, and does no more with it; only its annotations ask for a class.
        http=partial(AdmissionProtocol, admission=app.admission_server),  # type: ignore[arg-type]
        ssl_context_factory=use_context,
        access_log=False,
        log_config=None,
        # Nobody in front of it may say where a request came from, and nothing here asks.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=IDLE_TIMEOUT_SECONDS,
        # Seconds for what is still under way once the drain is over; a slow client gets no more.
        timeout_graceful_shutdown=10,
        ws="none",
    )
    tune_gc_for_server()
    server = _Server(config, drain)
    app.state.in_flight.tasks = server.server_state.tasks
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=[listener]))


class _Server(uvicorn.Server):
    """uvicorn's, which at a signal closes its port at once, made to drain first."""

    def __init__(self, config: uvicorn.Config, drain: Drain) -> None:
        super().__init__(config)
        self._drain = drain
        self._leaving = False

    def handle_exit(self, _sig: int, _frame: FrameType | None) -> None:
        """Begin to drain; at a second signal leave at once.

        Nothing is logged here: the signal may have interrupted the writing of a line.
        """
        if self._drain.started:
            self.should_exit = self.force_exit = True
        self._drain.start()

    async def on_tick(self, counter: int) -> bool:
        """Whether to end; asked ten times a second."""
        if await super().on_tick(counter):
            return True
        if self._drain.started and not self._leaving:
            self._leaving = True
            log.info(
                "asked to leave: not ready any more; ending after %g s without a review, in %g s "
                "at the latest, at a second signal at once",
                self._drain.idle_seconds,
                self._drain.timeout_seconds,
            )
            # These go into every answer from now on, whoever gives it.
            self.config.encoded_headers.append(CLOSE)
            self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        if not self._drain.finished():
            return False
        # The loop may have been busy until now: what came meanwhile is read before any connection
        # is taken for idle.
        await asyncio.sleep(0)
        return self._drain.finished()
