"""Supervision of background tasks, and the time that they take of the event loop at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

log = logging.getLogger(__name__)

_RESTART_SECONDS = 5.0
"""The pause before a restart, so that a task that always fails does not use up the CPU."""
SLICE_SECONDS = 0.002
"""The time slice of a background task. While it lasts, no review is answered."""


class TimeSlice:
    """A time slice of the event loop, for a task whose work grows with its input."""

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._ends_at = self._now() + SLICE_SECONDS

    async def yield_if_over(self) -> None:
        """Let the other tasks run if the slice is over, and begin another one."""
        if self._now() >= self._ends_at:
            await asyncio.sleep(0)
            self._ends_at = self._now() + SLICE_SECONDS


@asynccontextmanager
async def supervise(
    *coroutines: Callable[[], Awaitable[object]], restart_seconds: float = _RESTART_SECONDS
) -> AsyncIterator[None]:
    """Run endless coroutine functions in background tasks while the block runs.

    If a function raises or returns, it is started again after `restart_seconds`. Without a restart,
    an error in the renewal of the certificate would end all renewals.
    """
    tasks = [
        asyncio.create_task(_run_forever(coroutine, restart_seconds)) for coroutine in coroutines
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run_forever(coroutine: Callable[[], Awaitable[object]], restart_seconds: float) -> None:
    """Run a coroutine function, and start it again after it raises or returns."""
    while True:
        try:
            await coroutine()
        except Exception:
            name = getattr(coroutine, "__qualname__", repr(coroutine))
            log.exception("background task %s failed; restarting in %g s", name, restart_seconds)
        await asyncio.sleep(restart_seconds)
