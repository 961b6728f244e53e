"""A bounded cache whose entries expire."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Entry(NamedTuple, Generic[V]):
    value: V
    expires_at: float


class ExpiringCache(Generic[K, V]):
    """A cache of at most `max_entries`, each of which is valid for `ttl_seconds`.

    If the cache is full, a new entry replaces the oldest one. Clients can cause any number of
    entries, so a cache that was cleared whole would often be empty.
    """

    def __init__(
        self, ttl_seconds: float, max_entries: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self._ttl_seconds = ttl_seconds
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return a value, or None if it was never stored, was replaced, or has expired."""
        entry = self._entries.get(key)
        return entry.value if entry is not None and self._clock() < entry.expires_at else None

    def put(self, key: K, value: V) -> None:
        """Store a value."""
        self._entries[key] = _Entry(value, self._clock() + self._ttl_seconds)
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    def discard(self, key: K) -> None:
        """Remove a value, if it is there."""
        self._entries.pop(key, None)
