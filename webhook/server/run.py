"""The server process: two ports with TLS, the application behind uvicorn, and a graceful shutdown.

uvicorn stops immediately after a signal. podsettle continues to answer for a while, as
`webhook.server.drain` explains.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from time import monotonic

import uvicorn
import uvloop

from webhook.process_memory import malloc_trim, tune_memory_for_server
from webhook.server.app import create_app
from webhook.server.components import Components
from webhook.server.connections.accept import accept_connections
from webhook.server.connections.protocol import ReviewProtocol
from webhook.server.connections.web import WebProtocol
from webhook.server.limits import Limits
from webhook.tls.context import server_context

log = logging.getLogger(__name__)

_BACKLOG = 2048
"""Maximum number of connections that wait to be accepted. It is uvicorn's default."""
_SEND_BUFFER_BYTES = 256 * 1024
"""Size of a socket's send buffer. By default, the kernel grows it to megabytes for slow clients."""
_RECEIVE_BUFFER_BYTES = 32 * 1024
"""Size of a socket's receive buffer. For each connection, uvloop keeps several times the memory of
what it once received at a time: up to 1.1 MiB by default, and up to 0.3 MiB with this size."""
_TRIM_SECONDS = 60.0
_TRIM_CONNECTIONS = 500
"""Minimum number of new connections in this time after which memory is returned. Waves of 900
connections leave 25 MB each in the heap."""
_OTHER_FILES = 256
"""Files, pipes, and connections to the API server and to registries."""
_IN_FLIGHT_TIMEOUT_SECONDS = 10
"""Time limit for requests of both ports that are still in flight when the drain has finished. The
chart's terminationGracePeriodSeconds leaves 15 s for it."""
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


def raise_open_file_limit(limits: Limits) -> None:
    """Raise the soft limit on open files, as Go programs do, so that accepting never fails.

    If the hard limit is lower than what all connections need, log a warning.
    """
    needed = _OTHER_FILES + limits.max_connections + limits.max_web_connections
    needed += limits.max_handshakes + limits.max_web_handshakes
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < needed:
        log.warning(
            "open files: the hard limit of %d is too low for many clients: above it, podsettle may "
            "stop accepting connections; raise it to %d (ulimit -Hn)",
            hard,
            needed,
        )
        needed = hard
    if resource.RLIM_INFINITY != soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def web_context(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return a context with the certificate that `context` has at the time of each handshake.

    It never asks for a client certificate. Browsers would show a dialog.
    """

    def take_certificate(connection: ssl.SSLObject, _name: object, _web: object) -> None:
        connection.context = context

    web = server_context()
    web.sni_callback = take_certificate
    return web


def serve(
    components: Components,
    context: ssl.SSLContext,
    listener: socket.socket,
    web_listener: socket.socket,
) -> None:
    """Serve reviews on one port and the application on the other until the process must exit.

    SIGTERM or SIGINT starts the drain. The server exits when the drain has finished, or at the
    second signal.
    """
    raise_open_file_limit(components.review_server.handler.limits)
    tune_memory_for_server()
    server = Server(components, context, listener, web_listener)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve(sockets=[]))


class Server(uvicorn.Server):
    """uvicorn's server, with accept loops and signal handlers of podsettle."""

    def __init__(
        self,
        components: Components,
        context: ssl.SSLContext,
        listener: socket.socket,
        web_listener: socket.socket,
    ) -> None:
        self._reviews = components.review_server
        self._drain = self._reviews.handler.drain
        limits = self._reviews.handler.limits
        config = uvicorn.Config(
            create_app(components),
            http="h11",
            h11_max_incomplete_event_size=limits.max_header_bytes,
            headers=[("Connection", "close")],
            access_log=False,
            log_config=None,
            # A client could choose its address by X-Forwarded-For, and each address has a share of
            # some limits.
            proxy_headers=False,
            server_header=False,
            ws="none",
        )
        # A client can cause a warning with each invalid request.
        logging.getLogger("uvicorn.error").addFilter(_is_logged)
        super().__init__(config)
        self._web_connections: dict[WebProtocol, None] = {}
        web = web_context(context)
        self._ports = (
            (listener, context, self._new_review_protocol, limits.max_handshakes, limits),
            (web_listener, web, self._new_web_protocol, limits.max_web_handshakes, limits),
        )
        self._new_connections = 0
        self._tasks: list[asyncio.Task[None]] = []

    def _new_review_protocol(self) -> asyncio.BaseProtocol:
        self._new_connections += 1
        return ReviewProtocol(self._reviews, asyncio.get_running_loop())

    def _new_web_protocol(self) -> asyncio.BaseProtocol:
        self._new_connections += 1
        return WebProtocol(
            self._web_connections,
            self._reviews.handler.limits,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and then the accept loops."""
        loop = asyncio.get_running_loop()
        self._exiting = loop.create_task(self._exit_when_drained())
        await super().startup(sockets)
        if not self.should_exit:
            running = (self._trim_memory(), *(accept_connections(*port) for port in self._ports))
            self._tasks = [loop.create_task(each) for each in running]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close both ports, let all connections end, and stop the application."""
        for task in self._tasks:
            task.cancel()
        self._reviews.shutdown()
        end = monotonic() + _IN_FLIGHT_TIMEOUT_SECONDS
        for _ in range(int(_IN_FLIGHT_TIMEOUT_SECONDS / _POLL_SECONDS)):
            if self.force_exit or not self._reviews.connections:
                break
            await asyncio.sleep(_POLL_SECONDS)
        # Requests of the web port have had that time too. With 0, uvicorn would log an error.
        self.config.timeout_graceful_shutdown = max(1, round(end - monotonic()))
        await super().shutdown(sockets)
        if self.force_exit:
            # uvicorn then leaves it out, and the cancelled lifespan would log a traceback.
            await self.lifespan.shutdown()

    async def _trim_memory(self) -> None:
        """Return the memory of connections that have ended, if there were many."""
        while True:
            await asyncio.sleep(_TRIM_SECONDS)
            if self._new_connections >= _TRIM_CONNECTIONS:
                await asyncio.to_thread(malloc_trim)
            self._new_connections = 0

    def handle_exit(self, _sig: int, _frame: object) -> None:
        """Start the drain at SIGTERM or SIGINT. At the second signal, exit immediately."""
        if self._drain.started:
            self.should_exit = self.force_exit = True
        self._drain.start()

    async def _exit_when_drained(self) -> None:
        drain = self._drain
        while not drain.started:  # noqa: ASYNC110 (tests start the drain from another thread)
            await asyncio.sleep(_POLL_SECONDS)
        log.info(
            "shutting down: exit after %g s without reviews, at most %g s; "
            "send the signal again to exit now",
            drain.idle_seconds,
            drain.timeout_seconds,
        )
        while not self.should_exit:
            finished = drain.finished()
            # If the event loop was busy until now, sockets may contain reviews that were not read.
            # One iteration of the loop reads them, so that they restart the drain's idle time.
            await asyncio.sleep(0 if finished else _POLL_SECONDS)
            if finished and drain.finished():
                self.should_exit = True


def _is_logged(record: logging.LogRecord) -> bool:
    """Return whether a record is neither a warning nor about a request that the exit cancelled."""
    error = record.exc_info[1] if record.exc_info else None
    return record.levelno != logging.WARNING and not isinstance(error, asyncio.CancelledError)
