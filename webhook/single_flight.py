"""Calls that concurrent callers with the same key share, and a bounded cache of their results."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """The calls that are under way, at most one for each key."""

    def __init__(self) -> None:
        self._tasks: dict[K, asyncio.Task[V]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._tasks

    async def run(self, key: K, call: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the result of the call that is under way for a key, or else of a new one.

        The call continues if its callers are cancelled.
        """
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(call())
            task.add_done_callback(lambda done: self._on_done(key, done))
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Cancel all calls."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_done(self, key: K, task: asyncio.Task[V]) -> None:
        del self._tasks[key]
        # If all callers were cancelled, none retrieves the exception, and asyncio would log it.
        if not task.cancelled():
            task.exception()


class TooManyError(Exception):
    """A limit on concurrent look-ups was reached, either in total or for one owner."""


class _Entry(NamedTuple, Generic[V]):
    value: V
    expires: float
    size: int
    owner: Hashable
    """The first owner that fetched the value."""


class SingleFlightCache(Generic[K, V]):
    """An LRU cache whose values expire, with at most one fetch in flight for each key.

    `ttl` returns the seconds for which a value is valid, or 0 for a value that is not cached. To
    cache failures too, return them as values. `size_of` returns the memory of a value in bytes. All
    cached values together take at most `max_bytes`, because tenants and registries choose the
    values and their sizes.

    If the cache is full, the least recently used value of the owner with the largest share of it is
    evicted. So an owner cannot evict the values of others that have fewer.

    While `max_in_flight` fetches are under way, only an owner without a fetch may start one.
    """

    def __init__(
        self,
        ttl: Callable[[V], float],
        *,
        max_entries: int,
        size_of: Callable[[V], int] = lambda _: 0,
        max_bytes: int = 1,
        max_in_flight: int = sys.maxsize,
        max_per_owner: int = sys.maxsize,
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
        self._fetches: SingleFlight[K, V] = SingleFlight()
        self._in_flight: Counter[Hashable] = Counter()
        """The number of fetches under way for each owner."""

    def __len__(self) -> int:
        return len(self._entries)

    async def get(
        self, key: K, fetch: Callable[[], Coroutine[Any, Any, V]], owner: Hashable = None
    ) -> V:
        """Return the cached value, or call `fetch`. The fetch counts against the limit of `owner`.

        All callers with the same key wait for one fetch. The fetch continues if they are cancelled,
        so that its value is cached for the next caller.

        Raises TooManyError if another fetch would exceed a limit. Errors of `fetch` are raised too,
        and are not cached.
        """
        entry = self._entries.get(key)
        if entry is not None and entry.expires > self._clock():
            self._entries.move_to_end(key)
            return entry.value
        if key not in self._fetches:
            self._check_capacity(owner)
            self._in_flight[owner] += 1
        return await self._fetches.run(key, lambda: self._fetch_and_cache(key, fetch, owner))

    async def aclose(self) -> None:
        """Cancel all fetches."""
        await self._fetches.aclose()

    def _check_capacity(self, owner: Hashable) -> None:
        """Raise TooManyError if one more fetch for `owner` would exceed a limit.

        An owner without a fetch may always start one, so that other owners cannot block it.
        """
        owned, total = self._in_flight[owner], self._in_flight.total()
        if owned and total >= self._max_in_flight:
            raise TooManyError(f"{total} look-ups are under way")
        if owned >= self._max_per_owner:
            raise TooManyError(f"{owned} look-ups for {owner} are under way")

    async def _fetch_and_cache(
        self, key: K, fetch: Callable[[], Coroutine[Any, Any, V]], owner: Hashable
    ) -> V:
        """Fetch a value and cache it. Do not cache a value that is larger than the cache."""
        try:
            value = await fetch()
        finally:
            self._in_flight -= Counter((owner,))  # An owner without a fetch is forgotten.
        now = self._clock()
        for expired in [key for key, entry in self._entries.items() if entry.expires <= now]:
            self._evict(expired)
        if key in self._entries:
            self._evict(key)
        size, ttl = self._size_of(value), self._ttl(value)
        if size > self._max_bytes or ttl <= 0:
            return value
        self._entries[key] = _Entry(value, now + ttl, size, owner)
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


def bytes_of(value: object) -> int:
    """Return the bytes of memory of nested tuples of strings. A repeated string counts again."""
    inner = sum(map(bytes_of, value)) if isinstance(value, tuple) else 0
    return sys.getsizeof(value) + inner
