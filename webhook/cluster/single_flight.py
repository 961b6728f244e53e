"""Calls that concurrent callers with the same key share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """The calls that are under way, at most one for each key."""

    def __init__(self) -> None:
        self._tasks: dict[K, asyncio.Task[V]] = {}

    async def run(self, key: K, call: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the result of the call that is under way for a key, or else of a new one.

        The call continues if its callers are cancelled.
        """
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(call())
            task.add_done_callback(lambda _: self._tasks.pop(key))
        return await asyncio.shield(task)
