"""Lines of the log about reviews, written together fifty times a second.

One by one, they would cost a fifth of the time that a review takes.
"""

from __future__ import annotations

import asyncio
import logging

_SECONDS = 0.02
"""That a line may be late. Many lines at once would keep a review waiting."""


class Journal:
    """What is told of reviews that nothing went wrong with. For use on the event loop."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lines: list[str] = []

    @property
    def wanted(self) -> bool:
        """Whether anybody wants to read it."""
        return self._log.isEnabledFor(logging.INFO)

    def write(self, line: str) -> None:
        """Write a line, soon."""
        if not self._lines:
            asyncio.get_running_loop().call_later(_SECONDS, self.flush)
        self._lines.append(line)

    def flush(self) -> None:
        """Write what is still to be written."""
        lines, self._lines = self._lines, []
        if lines:
            self._log.info("%s", "\n".join(lines))
