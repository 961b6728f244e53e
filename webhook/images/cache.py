"""A bounded cache. Concurrent callers that need the same missing value share one fetch."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from sys import getsizeof
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TooManyError(Exception):
    """A limit on concurrent look-ups was reached, either in total or for one owner."""


class _Entry(NamedTuple, Generic[V]):
    value: V
    expires: float
    size: int
    owner: Hashable
    """The first owner that fetched the value."""


class _InFlight(NamedTuple, Generic[V]):
    task: asyncio.Task[V]
    owner: Hashable


class SingleFlightCache(Generic[K, V]):
    """An LRU cache whose values expire, with at most one fetch in flight for each key.

    `ttl` returns the seconds for which a value is valid. To cache failures too, return them as
    values. `size_of` returns the memory of a value in bytes. All cached values together take at
    most `max_bytes`, because tenants and registries choose the values and their sizes.

    If the cache is full, the least recently used value of the owner with the largest share of it is
    evicted. So an owner cannot evict the values of others that have fewer.

    While `max_in_flight` fetches are under way, only an owner without a fetch may start one.
    """

    def __init__(
        self,
        ttl: Callable[[V], float],
        *,
        max_entries: int,
        size_of: Callable[[V], int],
        max_bytes: int,
        max_in_flight: int,
        max_per_owner: int,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._ttl = ttl
        self._max_entries = max_entries
        self._size_of = size_of
        self._max_bytes = max_bytes
        self._max_in_flight = max_in_flight
        self._max_per_owner = max_per_owner
        self._clock = clock
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._cached_bytes = 0
        self._shares: Counter[Hashable] = Counter()
        """The share of the cache that each owner has, without a unit."""
        self._in_flight: dict[K, _InFlight[V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, key: K, fetch: Callable[[], Awaitable[V]], owner: Hashable = None) -> V:
        """Return the cached value, or call `fetch`. The fetch counts against the limit of `owner`.

        All callers with the same key wait for one fetch. The fetch continues if they are cancelled,
        so that its value is cached for the next caller.

        Raises TooManyError if another fetch would exceed a limit. Errors of `fetch` are raised too,
        and are not cached.
        """
        while True:
            entry = self._entries.get(key)
            if entry is not None:
                if entry.expires > self._clock():
                    self._entries.move_to_end(key)
                    return entry.value
                self._evict(key)
            in_flight = self._in_flight.get(key)
            if in_flight is None:
                self._check_capacity(owner)
                in_flight = _InFlight(
                    asyncio.create_task(self._fetch_and_cache(key, fetch, owner)), owner
                )
                self._in_flight[key] = in_flight
                in_flight.task.add_done_callback(lambda task: self._on_done(key, task))
            try:
                return await asyncio.shield(in_flight.task)
            except TooManyError:
                if in_flight.owner == owner:
                    raise
                # The limit of another owner was reached. Fetch again, counted for this owner.

    async def aclose(self) -> None:
        """Cancel all fetches."""
        tasks = [in_flight.task for in_flight in self._in_flight.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _check_capacity(self, owner: Hashable) -> None:
        """Raise TooManyError if one more fetch for `owner` would exceed a limit.

        An owner without a fetch may always start one, so that other owners cannot block it.
        """
        owned = sum(in_flight.owner == owner for in_flight in self._in_flight.values())
        if owned and len(self._in_flight) >= self._max_in_flight:
            raise TooManyError(f"{len(self._in_flight)} look-ups are under way")
        if owned >= self._max_per_owner:
            raise TooManyError(f"{owned} look-ups for {owner} are under way")

    async def _fetch_and_cache(
        self, key: K, fetch: Callable[[], Awaitable[V]], owner: Hashable
    ) -> V:
        """Fetch a value and cache it. Do not cache a value that is larger than the cache."""
        value = await fetch()
        now = self._clock()
        for expired in [key for key, entry in self._entries.items() if entry.expires <= now]:
            self._evict(expired)
        if key in self._entries:
            self._evict(key)
        size = self._size_of(value)
        if size > self._max_bytes:
            return value
        self._entries[key] = _Entry(value, now + self._ttl(value), size, owner)
        self._cached_bytes += size
        self._shares[owner] += self._share_of(size)
        while len(self._entries) > self._max_entries or self._cached_bytes > self._max_bytes:
            ((largest, _),) = self._shares.most_common(1)
            self._evict(next(key for key, each in self._entries.items() if each.owner == largest))
        return value

    def _evict(self, key: K) -> None:
        entry = self._entries.pop(key)
        self._cached_bytes -= entry.size
        self._shares[entry.owner] -= self._share_of(entry.size)
        if not self._shares[entry.owner]:
            del self._shares[entry.owner]

    def _share_of(self, size: int) -> int:
        """Return size / max_bytes + 1 / max_entries, times a constant that makes it whole."""
        return size * self._max_entries + self._max_bytes

    def _on_done(self, key: K, task: asyncio.Task[V]) -> None:
        del self._in_flight[key]
        # If all callers were cancelled, none retrieves the exception, and asyncio would log it.
        if not task.cancelled():
            task.exception()


def bytes_of(value: object) -> int:
    """Return the bytes of memory of nested tuples of strings. A repeated string counts again."""
    inner = sum(map(bytes_of, value)) if isinstance(value, tuple) else 0
    return getsizeof(value) + inner
