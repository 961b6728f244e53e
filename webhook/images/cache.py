"""A bounded memory of answers that took asking for, with one question under way per key."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from sys import getsizeof
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TooManyError(Exception):
    """As many questions are under way as there may be, in all or for one owner."""


class _Kept(NamedTuple, Generic[V]):
    value: V
    expires: float
    size: int


class _Flight(NamedTuple, Generic[V]):
    task: asyncio.Task[V]
    owner: Hashable


class Cache(Generic[K, V]):
    """Answers by key: the least recently used ones go first.

    `life` gives the seconds for which an answer holds. A failure is an answer like any other: make
    it a value, so that it is remembered for a while. `size_of` gives the bytes that an answer
    takes, which tenants and registries choose; those that are kept take up to `max_bytes`.
    """

    def __init__(
        self,
        life: Callable[[V], float],
        *,
        entries: int,
        size_of: Callable[[V], int] = lambda _value: 0,
        max_bytes: int = 0,
        flights: int,
        flights_per_owner: int,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._life = life
        self._entries = entries
        self._size_of = size_of
        self._max_bytes = max_bytes
        self._flights = flights
        self._flights_per_owner = flights_per_owner
        self._clock = clock
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()
        self._kept_bytes = 0
        self._under_way: dict[K, _Flight[V]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, key: K, ask: Callable[[], Awaitable[V]], owner: Hashable = None) -> V:
        """The answer, from memory or by asking on behalf of `owner`.

        Everyone who wants the same key waits for one question. It goes on when those who wait give
        up: the next one will want it. Raises TooManyError where it would be one too many, in all
        or for its owner, and what `ask` raises, which is not remembered.
        """
        while True:
            kept = self._kept.get(key)
            if kept is not None:
                if kept.expires > self._clock():
                    self._kept.move_to_end(key)
                    return kept.value
                self._forget(key)
            flight = self._under_way.get(key)
            if flight is None:
                self._make_sure_of_room(owner)
                flight = _Flight(asyncio.create_task(self._fly(key, ask)), owner)
                self._under_way[key] = flight
                flight.task.add_done_callback(lambda done: self._landed(key, done))
            try:
                return await asyncio.shield(flight.task)
            except TooManyError:
                if flight.owner == owner:
                    raise
                # The share of another owner is used up: ask at the cost of this one.

    async def aclose(self) -> None:
        """End what is under way."""
        flights = [flight.task for flight in self._under_way.values()]
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    def _make_sure_of_room(self, owner: Hashable) -> None:
        """Raise TooManyError."""
        if len(self._under_way) >= self._flights:
            raise TooManyError(f"{self._flights} look-ups are under way")
        own = sum(flight.owner == owner for flight in self._under_way.values())
        if own >= self._flights_per_owner:
            raise TooManyError(f"{own} look-ups for {owner} are under way")

    async def _fly(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        value = await ask()
        now = self._clock()
        for old in [old for old, kept in self._kept.items() if kept.expires <= now]:
            self._forget(old)
        if key in self._kept:
            self._forget(key)
        size = self._size_of(value)
        if size > self._max_bytes:
            return value
        self._kept[key] = _Kept(value, now + self._life(value), size)
        self._kept_bytes += size
        while len(self._kept) > self._entries or self._kept_bytes > self._max_bytes:
            self._forget(next(iter(self._kept)))
        return value

    def _forget(self, key: K) -> None:
        self._kept_bytes -= self._kept.pop(key).size

    def _landed(self, key: K, flight: asyncio.Task[V]) -> None:
        del self._under_way[key]
        # asyncio complains of an error that nobody looked at, as when all who waited gave up.
        if not flight.cancelled():
            flight.exception()


def bytes_of(value: object) -> int:
    """What nested tuples of texts take in memory, each text counted wherever it stands."""
    inner = sum(map(bytes_of, value)) if isinstance(value, tuple) else 0
    return getsizeof(value) + inner
