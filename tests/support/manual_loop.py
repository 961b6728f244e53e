"""An event loop for a protocol without sockets, whose timers a test inspects and expires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class ManualHandle:
    """A scheduled callback."""

    def __init__(self, seconds: float, callback: Callable[..., Any], *arguments: Any) -> None:
        self.seconds = seconds
        self._callback = callback
        self._arguments = arguments
        self.pending = True

    def cancel(self) -> None:
        self.pending = False

    def run(self) -> None:
        if self.pending:
            self.pending = False
            self._callback(*self._arguments)


class ManualLoop:
    """The methods of a loop that protocols use. Tasks run on the loop of the test."""

    def __init__(self) -> None:
        self.timers_started = 0
        """The number of all timers so far."""
        self._timers: list[ManualHandle] = []
        self._ready: list[ManualHandle] = []

    def call_later(
        self, delay: float, callback: Callable[..., Any], *arguments: Any
    ) -> ManualHandle:
        self.timers_started += 1
        self._timers.append(ManualHandle(delay, callback, *arguments))
        return self._timers[-1]

    def call_soon(self, callback: Callable[..., Any], *arguments: Any) -> ManualHandle:
        self._ready.append(ManualHandle(0, callback, *arguments))
        return self._ready[-1]

    def create_task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(coroutine)

    @property
    def timers(self) -> list[float]:
        """The times of the timers that run."""
        self._timers = [timer for timer in self._timers if timer.pending]
        return [timer.seconds for timer in self._timers]

    def expire(self, seconds: float) -> None:
        """Run the one timer that has this time."""
        (timer,) = [t for t in self._timers if t.pending and t.seconds == seconds]
        timer.run()

    def iterate(self) -> None:
        """Run the callbacks that were scheduled for the next iteration."""
        ready, self._ready = self._ready, []
        for handle in ready:
            handle.run()
