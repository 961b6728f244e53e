"""The application without a socket."""

from __future__ import annotations

from tests.support.server_fixtures import (
    client,
    serve,
    source,
)

__all__ = [
    "client",
    "serve",
    "source",
]
