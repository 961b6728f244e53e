"""Supervision of background tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

log = logging.getLogger(__name__)

_RESTART_SECONDS = 5.0


@asynccontextmanager
async def supervise(
    *coroutines: Callable[[], Awaitable[object]], restart_seconds: float = _RESTART_SECONDS
) -> AsyncIterator[None]:
    """Run endless coroutine functions while the block runs.

    If one raises or returns, it is started again after `restart_seconds`. Otherwise, for example,
    the certificate would no longer be renewed.
    """
    tasks = [asyncio.create_task(_restart_forever(each, restart_seconds)) for each in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _restart_forever(
    coroutine: Callable[[], Awaitable[object]], restart_seconds: float
) -> None:
    while True:
        try:
            await coroutine()
        except Exception:
            name = getattr(coroutine, "__qualname__", repr(coroutine))
            log.exception("background task %s failed; restarting in %g s", name, restart_seconds)
        await asyncio.sleep(restart_seconds)
