"""Host names of the API server, resolved in threads of their own.

`getaddrinfo` follows nsswitch and the resolvers of single domains, as kubectl does, and c-ares does
not. But it cannot be cancelled: if name servers do not answer, it blocks its thread for up to a
minute. The event loop's executor has few threads, and the process waits for them when it exits. So
each look-up has a daemon thread.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from webhook.single_flight import SingleFlight


class ThreadResolver(AbstractResolver):
    """A resolver for aiohttp. Callers that request the same name share one thread."""

    def __init__(self, getaddrinfo: Callable[..., Any] = socket.getaddrinfo) -> None:
        self._getaddrinfo = getaddrinfo
        self._lookups: SingleFlight[tuple[str, int, int], list[ResolveResult]] = SingleFlight()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host name. Raises OSError and UnicodeError."""
        key = host, port, int(family)
        return await self._lookups.run(key, lambda: self._resolve_in_thread(*key))

    async def _resolve_in_thread(self, host: str, port: int, family: int) -> list[ResolveResult]:
        found: Future[list[ResolveResult]] = Future()
        found.set_running_or_notify_cancel()  # A cancelled caller cannot cancel it from now on.

        def run() -> None:
            try:
                found.set_result(self._addresses(host, port, family))
            except Exception as error:
                found.set_exception(error)

        try:
            threading.Thread(target=run, name="resolver", daemon=True).start()
        except RuntimeError as error:  # A container's limit on processes also counts threads.
            raise OSError(f"cannot start a DNS look-up: {error}") from None
        return await asyncio.wrap_future(found)

    def _addresses(self, host: str, port: int, family: int) -> list[ResolveResult]:
        # AI_ADDRCONFIG as in aiohttp's own resolver: no IPv6 addresses on a machine without IPv6.
        flags = socket.AI_ADDRCONFIG
        infos = self._getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=flags)
        numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
        return [
            ResolveResult(
                hostname=host,
                host=socket.getnameinfo(address, numeric)[0],
                port=port,
                family=found,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for found, _, protocol, _, address in infos
        ]

    async def close(self) -> None:
        """Do nothing: look-ups cannot be cancelled."""
