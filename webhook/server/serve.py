"""Run the server: TLS only, on uvicorn with uvloop and httptools."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl

import uvicorn
from fastapi import FastAPI

from webhook.tls.files import ServedCertificate

_BACKLOG = 2048


class AddressError(Exception):
    """An address that cannot be listened on."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 finds a free one. Raises AddressError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except socket.gaierror as error:
        raise AddressError(f"cannot listen on {host}: {error.strerror}") from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise AddressError(f"cannot listen on {host} port {port}: {reason}") from None


def serve(app: FastAPI, certificate: ServedCertificate, listener: socket.socket) -> None:
    """Serve until a signal ends it."""

    def use_context(_config: uvicorn.Config, _default: object) -> ssl.SSLContext:
        return certificate.context

    config = uvicorn.Config(
        app,
        ssl_context_factory=use_context,
        access_log=False,
        log_config=None,
        server_header=False,
        # An idle connection of the API server lives for 90 s (kubernetes client-go transport);
        # closing it sooner races with the next review on it.
        timeout_keep_alive=120,
        # Seconds for what is under way when a signal comes; a slow client gets no more.
        timeout_graceful_shutdown=10,
        ws="none",
    )

    async def run() -> None:
        watching = asyncio.create_task(certificate.watch())
        try:
            await uvicorn.Server(config).serve(sockets=[listener])
        finally:
            watching.cancel()

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())
