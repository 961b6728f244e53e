"""Warnings that clients can cause as often as they like, limited in number."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import monotonic


class LimitedLog:
    """A logger of warnings. Each line says how many were left out since the one before."""

    def __init__(
        self,
        log: logging.Logger,
        *,
        max_lines: int = 1,
        seconds: float = 1.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Create a logger that writes at most `max_lines` to `log` in any `seconds`."""
        self._log = log
        self._seconds = seconds
        self._clock = clock
        self._written_at: deque[float] = deque(maxlen=max_lines)
        self._left_out = 0

    def warning(self, message: str) -> None:
        """Log a message, or count it if there were too many lines."""
        now = self._clock()
        is_full = len(self._written_at) == self._written_at.maxlen
        if is_full and now - self._written_at[0] < self._seconds:
            self._left_out += 1
            return
        more = f" ({self._left_out} more of this kind since the last line)" * bool(self._left_out)
        self._written_at.append(now)
        self._left_out = 0
        self._log.warning("%s%s", message, more)
