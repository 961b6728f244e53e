"""Waiting for a condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

TIMEOUT_SECONDS = 30.0


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until a callable returns something true, for 60 s at most."""
    async with asyncio.timeout(60):
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
