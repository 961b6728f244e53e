"""The log of decisions. It formats and writes lines in batches, fifty times a second.

Single lines would cost a fifth of the time that a review takes.
"""

from __future__ import annotations

import asyncio
import logging

_FLUSH_SECONDS = 0.02
"""Delay of a line. With a longer one, a batch would be large enough to delay a review."""
_MAX_LINE_CHARACTERS = 2400


def printable(text: str, max_characters: int = 128) -> str:
    """Return untrusted text as one line of bounded length. It cannot forge lines of the log."""
    cut = text[:max_characters]
    return cut if cut.isprintable() else ascii(cut)


class ReviewLog:
    """A buffer of lines about decisions. Use it on the event loop only."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._decided: list[tuple[str, str, str, str]] = []

    @property
    def enabled(self) -> bool:
        """Whether the log level includes these lines."""
        return self._log.isEnabledFor(logging.INFO)

    def record(self, uid: str, namespace: str, pod: str, summary: str) -> None:
        """Add a decision. It is written at the next flush."""
        if not self._decided:
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
        # Cut here, because a batch of long names would occupy memory until the flush.
        limit = _MAX_LINE_CHARACTERS
        texts = uid[:limit], namespace[:limit], pod[:limit], summary
        self._decided.append(texts)

    def flush(self) -> None:
        """Write all added lines."""
        decided, self._decided = self._decided, []
        lines = [
            printable(f"uid {uid} pod {namespace}/{pod}: {summary}", _MAX_LINE_CHARACTERS)
            for uid, namespace, pod, summary in decided
        ]
        if lines:
            self._log.info("%s", "\n".join(lines))
