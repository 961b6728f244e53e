"""Work that goes on beside the answering of requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

log = logging.getLogger(__name__)

_PAUSE = 5.0


@asynccontextmanager
async def supervise(*works: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Keep endless work going while the block runs.

    A defect in it is logged, and the work is begun anew after 5 s: a certificate that is no longer
    renewed, or a policy that is no longer followed, would be worse.
    """
    tasks = [asyncio.create_task(_go_on(work)) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _go_on(work: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await work()
        except Exception:
            log.exception("a defect in podsettle; beginning anew in %g s", _PAUSE)
        await asyncio.sleep(_PAUSE)
