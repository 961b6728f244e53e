"""Host names to addresses, in threads that nothing else uses.

`getaddrinfo` cannot be cancelled. Where name servers do not answer it holds its thread for 5 s per
attempt, name server and search domain (`man resolv.conf`): up to a minute in a pod. On the event
loop's own threads a few such names stop all else that runs there: the default executor has few
workers and joins them at exit, and uvloop does at most two look-ups at a time, in libuv's pool.

So each look-up has a daemon thread: no exit waits for it. Their number is bounded in all and per
owner, and nothing is queued behind look-ups that hang: one too many is refused at once.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

_STUCK_SECONDS = 5.0
"""After which a look-up counts as stuck: the time for one attempt (`man resolv.conf`, timeout)."""


class Address(NamedTuple):
    """One of the addresses of a name."""

    host: str
    """Numeric; of an IPv6 address on a link with its interface."""
    port: int
    family: int
    protocol: int


Resolve = Callable[[str, int, int], list[Address]]


class LookupLimitError(OSError):
    """As many look-ups are under way as there may be, for an owner or in all."""


@dataclass(frozen=True, slots=True, eq=False)
class _Lookup:
    owner: str
    begun: float
    answer: asyncio.Future[list[Address]]


def resolve(host: str, port: int, family: int) -> list[Address]:
    """The addresses of a name, as the operating system has them. Blocks.

    Raises OSError, and UnicodeError for what cannot be a name.
    """
    # AI_ADDRCONFIG: no IPv6 addresses where the machine has none, as aiohttp's own resolver.
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    return [
        Address(socket.getnameinfo(address, numeric)[0], port, of_family, protocol)
        for of_family, _, protocol, _, address in found
    ]


class Resolver:
    """Looks names up for owners, such as namespaces; each has a share of the threads.

    Used by one event loop at a time.
    """

    def __init__(
        self,
        max_lookups: int,
        max_lookups_per_owner: int,
        *,
        count_refused: Callable[[], None] = lambda: None,
        resolve: Resolve = resolve,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`count_refused` is called for each look-up that is refused; `resolve`, in a thread, for
        each one that is not.
        """
        self._max_lookups = max_lookups
        self._max_lookups_per_owner = max_lookups_per_owner
        self._count_refused = count_refused
        self._resolve = resolve
        self._clock = clock
        self._latest: dict[tuple[str, int, int], _Lookup] = {}
        self._under_way: set[_Lookup] = set()
        self._owners: Counter[str] = Counter()

    @property
    def stuck(self) -> int:
        """How many look-ups have been under way for more than 5 s; each holds a thread."""
        return sum(map(self._is_stuck, self._under_way))

    async def addresses(self, host: str, port: int, family: int, owner: str) -> list[Address]:
        """The addresses of a name.

        Callers that ask for the same name share one look-up, which counts for the first owner,
        unless it is stuck: then the next caller begins another. A cancelled caller leaves the
        look-up as it is.

        Raises OSError as `getaddrinfo` does, UnicodeError for what cannot be a name, and
        LookupLimitError.
        """
        key = (host, port, family)
        lookup = self._latest.get(key)
        if lookup is None or self._is_stuck(lookup):
            lookup = self._begin(key, owner)
        return await asyncio.shield(lookup.answer)

    def _is_stuck(self, lookup: _Lookup) -> bool:
        return self._clock() - lookup.begun > _STUCK_SECONDS

    def _begin(self, key: tuple[str, int, int], owner: str) -> _Lookup:
        """Start a thread. Raises LookupLimitError."""
        self._check_limits(owner)
        loop = asyncio.get_running_loop()
        lookup = _Lookup(owner, self._clock(), loop.create_future())

        def run() -> None:
            answer: list[Address] | Exception
            try:
                answer = self._resolve(*key)
            except Exception as error:
                answer = error
            with suppress(RuntimeError):  # The loop is closed: the answer comes too late.
                loop.call_soon_threadsafe(self._end, key, lookup, answer)

        try:
            threading.Thread(target=run, name="resolver", daemon=True).start()
        except RuntimeError as error:  # The container's limit on processes counts threads, too.
            self._count_refused()
            raise LookupLimitError(f"no name can be looked up: {error}") from None
        self._latest[key] = lookup
        self._under_way.add(lookup)
        self._owners[owner] += 1
        return lookup

    def _check_limits(self, owner: str) -> None:
        """Raise LookupLimitError.

        An owner may have as many look-ups under way as threads are free, at most its share: the
        last threads go to owners that have few, so several owners do not take them all.
        """
        free = self._max_lookups - len(self._under_way)
        own = self._owners[owner]
        if own < min(self._max_lookups_per_owner, free):
            return
        self._count_refused()
        if free > 0:
            raise LookupLimitError(
                f"{own} look-ups of names for {owner} are under way; no more are begun until one "
                "ends"
            )
        raise LookupLimitError(
            f"{self._max_lookups} look-ups of names are under way; no more are begun until one ends"
        )

    def _end(
        self, key: tuple[str, int, int], lookup: _Lookup, answer: list[Address] | Exception
    ) -> None:
        self._under_way.discard(lookup)
        self._owners[lookup.owner] -= 1
        if not self._owners[lookup.owner]:
            del self._owners[lookup.owner]
        if self._latest.get(key) is lookup:
            del self._latest[key]
        if isinstance(answer, Exception):
            lookup.answer.set_exception(answer)
            lookup.answer.exception()  # asyncio logs errors that no caller waits for any more.
        else:
            lookup.answer.set_result(answer)
