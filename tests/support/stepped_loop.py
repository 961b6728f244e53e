"""An event loop that tells when it has nothing left to do, and whose clock a test advances.

A test of two servers sends bytes and then needs to know that the server has read and answered all
of them. With this loop it awaits exactly that. The loop's clock stands still meanwhile, so no
timeout depends on the speed of the machine, and timeouts of seconds take no time.

All peers of the sockets have to be in this process, because only then are sent bytes readable at
once. Threads and other processes are not waited for.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from time import monotonic
from typing import ParamSpec, TypeVar

_MAX_BUSY_ITERATIONS = 200_000
"""Iterations of the loop without an idle one, after which the callbacks are taken for endless."""
_MAX_BLOCKED_SECONDS = 30.0
"""Time without a timer, an event or a test that waits, after which the loop is taken for stuck."""


P = ParamSpec("P")
T = TypeVar("T")


def stepped(test: Callable[P, Coroutine[object, object, T]]) -> Callable[P, T]:
    """Return a function that runs a coroutine function on a loop of its own of this kind."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with asyncio.Runner(loop_factory=SteppedLoop) as runner:
            return runner.run(test(*args, **kwargs))

    return run


class EndlessLoopError(AssertionError):
    """A loop that does not become idle, or that waits for nothing."""


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop with its own clock, which `idle` and `advance` control."""

    def __init__(self) -> None:
        # `time` is called by the constructor of some versions of asyncio.
        self._now = monotonic()
        self._until = self._now
        self._idle: asyncio.Future[None] | None = None
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Return the loop's own time."""
        return self._now

    async def idle(self) -> None:
        """Wait until no callback is ready and no socket readable. No time passes."""
        await self.advance(0.0)

    async def advance(self, seconds: float) -> None:
        """Let time pass: run the timers that are due in it, and all that follows from them."""
        assert self._idle is None, "one test waits at a time"
        self._until = self._now + seconds
        self._idle = self.create_future()
        await self._idle

    def pass_time(self, seconds: float | None) -> bool:
        """Advance the clock to the next timer, if a test permits it. Wake up the test otherwise.

        Return False if no test waits and no timer runs, so that the selector has to block.
        """
        if self._idle is None:
            # A server starts or stops. Its timers run as fast as they can.
            self._now += seconds or 0.0
            return seconds is not None
        if seconds is not None and self._now + seconds <= self._until:
            self._now += seconds
            return True
        self._now = self._until
        idle, self._idle = self._idle, None
        self.call_soon(idle.set_result, None)
        return True


class _Selector(selectors.DefaultSelector):
    """A selector that asks its loop instead of blocking."""

    def __init__(self, loop: SteppedLoop) -> None:
        super().__init__()
        self._loop = loop
        self._busy_iterations = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the events that are there. Without any, let the loop's time pass."""
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            self._busy_iterations += 1
            if self._busy_iterations > _MAX_BUSY_ITERATIONS:
                raise EndlessLoopError(f"{self._busy_iterations} iterations and still not idle")
            return events
        self._busy_iterations = 0
        if self._loop.pass_time(timeout):
            return []
        events = super().select(_MAX_BLOCKED_SECONDS)
        if not events:
            raise EndlessLoopError(f"nothing happened within {_MAX_BLOCKED_SECONDS:g} s")
        return events
