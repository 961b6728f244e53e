"""An adapter of `webhook.dns_resolver` to aiohttp's interface for resolvers."""

from __future__ import annotations

import socket
from collections.abc import Callable

from aiohttp.abc import AbstractResolver, ResolveResult

from webhook.dns_resolver import Resolver


class ThreadResolver(AbstractResolver):
    """A resolver for aiohttp that delegates to a Resolver.

    `owner` is called for each look-up. It returns the key of the limit that the look-up counts for.
    """

    def __init__(self, resolver: Resolver, owner: Callable[[], str]) -> None:
        self._resolver = resolver
        self._owner = owner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host name. Raises OSError and UnicodeError."""
        addresses = await self._resolver.addresses(host, port, family, self._owner())
        return [
            ResolveResult(
                hostname=host,
                host=address.host,
                port=address.port,
                family=address.family,
                proto=address.protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Do nothing, because other sessions may use the same Resolver."""
