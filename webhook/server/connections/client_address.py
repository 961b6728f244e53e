"""The address of a connection's client."""

from __future__ import annotations

import asyncio


def client_address(transport: asyncio.BaseTransport) -> str:
    """Return the client's IP address without its port. It is empty for a Unix socket."""
    peername = transport.get_extra_info("peername")
    return str(peername[0]) if isinstance(peername, tuple) else ""
