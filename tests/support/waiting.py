"""Waiting for a condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# On a machine with ten busy processes for each core, a step takes more than a minute.
TIMEOUT_SECONDS = 180.0


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until a callable returns something true, or until the timeout."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.02)


def await_that(
    condition: Callable[[], object], what: str, seconds: float = TIMEOUT_SECONDS
) -> None:
    """Wait until a callable returns something true; fail with `what` where it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)
