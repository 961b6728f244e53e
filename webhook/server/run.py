"""The server process: two ports with TLS, the application behind uvicorn, and a graceful shutdown.

uvicorn stops immediately after a signal. podsettle continues to answer for a while, as
`webhook.server.drain` explains. Therefore its own signal handlers replace those of uvicorn, and
`should_exit` is set when the drain has finished.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import ssl
import threading

import uvicorn
import uvloop
from starlette.types import ASGIApp

from webhook.process_memory import tune_memory_for_server
from webhook.server.components import Components
from webhook.server.connections.accept import accept_connections
from webhook.server.connections.open_file_limit import allow_sockets
from webhook.server.connections.protocol import ReviewProtocol
from webhook.server.connections.web import WebProtocol
from webhook.server.drain import Drain

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
_POLL_SECONDS = 0.1
"""The interval at which the drain is checked. uvicorn checks `should_exit` at the same interval."""


class AddressError(Exception):
    """An address that the server cannot listen on."""


def listen(host: str, port: int, hint: str) -> socket.socket:
    """Return a listening socket. Port 0 selects a free port.

    Raises AddressError, whose text ends with the hint if the port is taken.

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
    except OSError as error:
        # The message of `create_server` repeats the address in brackets. The error of a host name
        # that cannot be resolved has a number that `os.strerror` does not know.
        reason = (error.strerror or str(error)).partition(" (")[0]
        in_use = error.errno == errno.EADDRINUSE
        what_to_do = f"; choose another port: {hint}" if in_use else ""
        raise AddressError(f"cannot listen on {host} port {port}: {reason}{what_to_do}") from None
    # Accepted connections inherit these options.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    return listener


def serve(
    app: ASGIApp,
    components: Components,
    context: ssl.SSLContext,
    listener: socket.socket,
    web_listener: socket.socket,
) -> None:
    """Serve reviews on one port and the application on the other until the process must exit.

    SIGTERM or SIGINT starts the drain. The server exits when the drain has finished, or at the
    second signal.
    """
    limits = components.limits
    connections = limits.max_connections + limits.max_web_connections
    allow_sockets(connections + limits.max_handshakes + limits.max_web_handshakes)
    config = uvicorn.Config(
        app,
        http="h11",
        h11_max_incomplete_event_size=limits.max_header_bytes,
        headers=[("Connection", "close")],
        access_log=False,
        log_config=None,
        # A client could choose its address by X-Forwarded-For, and each address has a share of some
        # limits.
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_IN_FLIGHT_TIMEOUT_SECONDS,
        ws="none",
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_warning)
    tune_memory_for_server()
    server = _Server(config, components, context, listener, web_listener)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve_until_drained(server, components.drain))


def _is_no_warning(record: logging.LogRecord) -> bool:
    """Return False for uvicorn's warnings. A client can cause one with each invalid request."""
    return record.levelno != logging.WARNING


class _Server(uvicorn.Server):
    """uvicorn's server, whose connections come from the accept loops of both ports."""

    def __init__(
        self,
        config: uvicorn.Config,
        components: Components,
        context: ssl.SSLContext,
        listener: socket.socket,
        web_listener: socket.socket,
    ) -> None:
        super().__init__(config)
        self._limits = components.limits
        self._reviews = components.review_server
        self._context = context
        self._listeners = listener, web_listener
        self._accepting: list[asyncio.Task[None]] = []
        self._web_connections: dict[WebProtocol, None] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and then the accept loops."""
        await super().startup(sockets)
        if self.should_exit:
            return
        loop, limits = asyncio.get_running_loop(), self._limits

        def new_web_protocol() -> asyncio.BaseProtocol:
            return WebProtocol(
                self._web_connections,
                limits,
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )

        def new_review_protocol() -> asyncio.BaseProtocol:
            return ReviewProtocol(self._reviews, loop)

        reviews, web = self._listeners
        self._accepting = [
            loop.create_task(accept_connections(listener, self._context, new, handshakes, limits))
            for listener, new, handshakes in (
                (reviews, new_review_protocol, limits.max_handshakes),
                (web, new_web_protocol, limits.max_web_handshakes),
            )
        ]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close both ports, let all connections end, and stop the application."""
        for task in self._accepting:
            task.cancel()
        ended = asyncio.create_task(self._reviews.shutdown())
        for _ in range(int(_IN_FLIGHT_TIMEOUT_SECONDS / _POLL_SECONDS)):
            if self.force_exit or ended.done():
                break
            await asyncio.wait((ended,), timeout=_POLL_SECONDS)
        ended.cancel()
        await super().shutdown(sockets)


async def _serve_until_drained(server: uvicorn.Server, drain: Drain) -> None:
    """Run the server, and a task that makes it exit."""
    # The task begins when `server.serve` waits for the first time. By then uvicorn has installed
    # its signal handlers, so that the handlers of this module replace them.
    shutdown = asyncio.create_task(_exit_when_drained(server, drain))
    try:
        await server.serve(sockets=[])
        if server.force_exit:
            # uvicorn then leaves it out, and the cancelled lifespan would log a traceback.
            await server.lifespan.shutdown()
    finally:
        shutdown.cancel()


async def _exit_when_drained(server: uvicorn.Server, drain: Drain) -> None:
    """Handle signals, and make the server exit when the drain has finished."""
    # Python allows signal handlers in the main thread only. Tests serve in other threads.
    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _handle_signal, server, drain)
    while not drain.started:  # noqa: ASYNC110 (tests start the drain from another thread)
        await asyncio.sleep(_POLL_SECONDS)
    log.info(
        "shutting down: exit after %g s without reviews, at most %g s; "
        "send the signal again to exit now",
        drain.idle_seconds,
        drain.timeout_seconds,
    )
    while not await _has_finished(drain):  # noqa: ASYNC110 (the drain ends with the time)
        await asyncio.sleep(_POLL_SECONDS)
    server.should_exit = True


def _handle_signal(server: uvicorn.Server, drain: Drain) -> None:
    """Start the drain. At the second signal, make the server exit immediately."""
    if drain.started:
        server.should_exit = server.force_exit = True
    drain.start()


async def _has_finished(drain: Drain) -> bool:
    """Return whether the drain has finished, and no review arrived in the meantime."""
    if not drain.finished():
        return False
    # If the event loop was busy until now, sockets may contain reviews that have not been read.
    # One iteration of the loop reads them, so that they restart the drain's idle time.
    await asyncio.sleep(0)
    return drain.finished()
