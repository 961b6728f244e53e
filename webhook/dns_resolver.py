"""DNS look-ups in separate threads, so that unresponsive name servers block no other work.

`getaddrinfo` cannot be cancelled. If name servers do not answer, it blocks its thread for 5 s per
attempt, name server and search domain (`man resolv.conf`). In a pod, this can take a minute. In a
shared thread pool, a few such look-ups would block all workers. The default executor has few
workers, and the process waits for them when it exits. uvloop runs at most two look-ups at a time.

Therefore each look-up runs in a daemon thread, which does not delay the exit of the process. The
number of threads is limited, in total and per owner, but each owner can have at least one. A
look-up beyond a limit is refused. It is not queued, because it would wait for look-ups that hang.
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
"""A look-up that takes longer counts as stuck. It is the default timeout of an attempt."""


class Address(NamedTuple):
    """One address of a host name."""

    host: str
    """The numeric address. A link-local IPv6 address includes its interface."""
    port: int
    family: int
    protocol: int


Resolve = Callable[[str, int, int], list[Address]]


class LookupLimitError(OSError):
    """The limit on look-ups is reached, for an owner or in total."""


@dataclass(frozen=True, slots=True, eq=False)
class _Lookup:
    """A look-up whose thread has been started."""

    owner: str
    """The key of the limit that the look-up counts for, such as a namespace."""
    started_at: float
    answer: asyncio.Future[list[Address]]


def resolve(host: str, port: int, family: int) -> list[Address]:
    """Return the addresses of a host name from the operating system.

    Blocks the thread until the system answers. Raises OSError, and UnicodeError if `host` cannot be
    a host name.
    """
    # AI_ADDRCONFIG as in aiohttp's own resolver: no IPv6 addresses on a machine without IPv6.
    infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    return [
        Address(socket.getnameinfo(address, numeric)[0], port, address_family, protocol)
        for address_family, _, protocol, _, address in infos
    ]


class Resolver:
    """DNS look-ups with a limit in total and per owner. An owner is, for example, a namespace.

    Use it on one event loop at a time.
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
        """Create a resolver.

        `resolve` runs in a new thread for each look-up. `count_refused` is called when a look-up is
        refused.
        """
        self._max_lookups = max_lookups
        self._max_lookups_per_owner = max_lookups_per_owner
        self._count_refused = count_refused
        self._resolve = resolve
        self._clock = clock
        self._latest_lookups: dict[tuple[str, int, int], _Lookup] = {}
        self._in_flight: set[_Lookup] = set()
        self._in_flight_by_owner: Counter[str] = Counter()

    @property
    def stuck(self) -> int:
        """The number of look-ups that have taken more than 5 s so far. Each occupies a thread."""
        return sum(map(self._is_stuck, self._in_flight))

    async def addresses(self, host: str, port: int, family: int, owner: str) -> list[Address]:
        """Return the addresses of a host name.

        Callers that request the same name share one look-up. It counts for the owner of the first
        caller. If the look-up is stuck, the next caller starts another one. Cancelling a caller
        does not cancel the look-up.

        Raises OSError as `getaddrinfo` does, UnicodeError if `host` cannot be a host name, and
        LookupLimitError.
        """
        key = (host, port, family)
        lookup = self._latest_lookups.get(key)
        if lookup is None or self._is_stuck(lookup):
            lookup = self._start(key, owner)
        return await asyncio.shield(lookup.answer)

    def _is_stuck(self, lookup: _Lookup) -> bool:
        return self._clock() - lookup.started_at > _STUCK_SECONDS

    def _start(self, key: tuple[str, int, int], owner: str) -> _Lookup:
        """Start a thread for a look-up. Raises LookupLimitError."""
        self._check_limits(owner)
        loop = asyncio.get_running_loop()
        lookup = _Lookup(owner, self._clock(), loop.create_future())

        def run() -> None:
            answer: list[Address] | Exception
            try:
                answer = self._resolve(*key)
            except Exception as error:
                answer = error
            with suppress(RuntimeError):  # The loop is closed, so nothing waits for the answer.
                loop.call_soon_threadsafe(self._finish, key, lookup, answer)

        try:
            threading.Thread(target=run, name="resolver", daemon=True).start()
        except RuntimeError as error:  # A container's limit on processes also counts threads.
            self._count_refused()
            raise LookupLimitError(f"cannot start a DNS look-up: {error}") from None
        self._latest_lookups[key] = lookup
        self._in_flight.add(lookup)
        self._in_flight_by_owner[owner] += 1
        return lookup

    def _check_limits(self, owner: str) -> None:
        """Raise LookupLimitError if the owner may not start a look-up.

        An owner's look-ups in flight must be fewer than the limit per owner, and fewer than the
        free threads. The second condition reserves the last threads for owners with few look-ups,
        so that a few owners cannot occupy all threads. An owner without a look-up may always start
        one, even above the total, so that many owners cannot block another one either.
        """
        free_threads = max(self._max_lookups - len(self._in_flight), 0)
        in_flight = self._in_flight_by_owner[owner]
        if in_flight < min(self._max_lookups_per_owner, max(free_threads, 1)):
            return
        self._count_refused()
        if free_threads > 0:
            raise LookupLimitError(
                f"{in_flight} DNS look-ups for {owner} are in flight; no more start until one ends"
            )
        raise LookupLimitError(
            f"{len(self._in_flight)} DNS look-ups are in flight; no more start until one ends"
        )

    def _finish(
        self, key: tuple[str, int, int], lookup: _Lookup, answer: list[Address] | Exception
    ) -> None:
        """Remove a look-up from the counts, and give its result to the callers that wait."""
        self._in_flight.discard(lookup)
        self._in_flight_by_owner[lookup.owner] -= 1
        if not self._in_flight_by_owner[lookup.owner]:
            del self._in_flight_by_owner[lookup.owner]
        if self._latest_lookups.get(key) is lookup:
            del self._latest_lookups[key]
        if isinstance(answer, Exception):
            lookup.answer.set_exception(answer)
            lookup.answer.exception()  # Otherwise asyncio logs errors that no caller awaits.
        else:
            lookup.answer.set_result(answer)
