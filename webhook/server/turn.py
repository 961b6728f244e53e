"""A turn of the event loop: it reads from all clients that sent something, one after another."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from time import monotonic


class Turn:
    """When the loop began to read in its present turn.

    What is read in a turn had all been sent before it was read, so whoever comes last has waited
    for those before him. `loop.time()` would not tell: uvloop's looks at the clock whenever it is
    asked.
    """

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began: float | None = None

    def began(self, loop: AbstractEventLoop) -> float:
        """By `time.monotonic`; for whoever reads."""
        if self._began is None:
            self._began = monotonic()
            # The loop comes to it once it has read from everybody.
            loop.call_soon(self._end)
        return self._began

    def _end(self) -> None:
        self._began = None
