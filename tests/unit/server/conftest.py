"""The application without a socket."""

from __future__ import annotations

from tests.support.server_fixtures import (
    client,
    serve,
    served,
    source,
    start,
)

__all__ = [
    "client",
    "serve",
    "served",
    "source",
    "start",
]
