"""Warnings that clients can cause as often as they like, at most one a second."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from time import monotonic

LOG_INTERVAL_SECONDS = 1.0
"""Minimum time between two lines."""


class LimitedLog:
    """A logger of warnings. Each line says how many were left out since the one before."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = monotonic) -> None:
        self._log = log
        self._clock = clock
        self._last_line_at = -inf
        self._left_out = 0

    def warning(self, message: str) -> None:
        """Log a message, or count it if the last line is too new."""
        now = self._clock()
        if now - self._last_line_at < LOG_INTERVAL_SECONDS:
            self._left_out += 1
            return
        more = f" ({self._left_out} more of this kind since the last line)" * bool(self._left_out)
        self._last_line_at, self._left_out = now, 0
        self._log.warning("%s%s", message, more)
