"""Waiting for a condition, and what threads repeat meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def repeating(*actions: Callable[[], object], pause_seconds: float) -> Iterator[list[str]]:
    """Repeat each action in a thread of its own while the block runs. Yield what they raised.

    A thread ends at its first error.
    """
    over = threading.Event()
    failed: list[str] = []

    def repeat(action: Callable[[], object]) -> None:
        try:
            while not over.wait(pause_seconds):
                action()
        except Exception as error:
            failed.append(f"{action.__name__}: {error!r}")

    threads = [threading.Thread(target=repeat, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    try:
        yield failed
    finally:
        over.set()
        for thread in threads:
            thread.join()
