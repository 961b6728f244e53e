"""The application without a socket."""

from __future__ import annotations

from tests.support.server_fixtures import (
    client,
    connections_stay,
    source,
)

__all__ = [
    "client",
    "connections_stay",
    "source",
]
