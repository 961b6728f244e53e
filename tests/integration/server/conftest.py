"""The application without a socket, and a real server process with one."""

from __future__ import annotations

from tests.support.server_fixtures import (
    client,
    serve,
    server,
    source,
)

__all__ = [
    "client",
    "serve",
    "server",
    "source",
]
