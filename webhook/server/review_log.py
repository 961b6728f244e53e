"""The log of decisions, which formats and writes lines in batches, 50 times a second.

To write each line separately would take a fifth of the time of a review.
"""

from __future__ import annotations

import asyncio
import logging

log = logging.getLogger(__name__)

_FLUSH_SECONDS = 0.02
"""Maximum delay of a line. With a longer delay, batches would grow and delay reviews."""
_MAX_LINE_CHARACTERS = 2400
"""Maximum length of a line, because a client chooses the uid and the names."""


def printable(text: str, max_characters: int = 128) -> str:
    """Return untrusted text as one line of limited length, so that it cannot forge log lines."""
    shortened = text[:max_characters]
    return shortened if shortened.isprintable() else ascii(shortened)


class ReviewLog:
    """A buffer of lines about decisions. Use it on the event loop only."""

    def __init__(self) -> None:
        self._pending: list[tuple[str, str, str, str]] = []

    @property
    def enabled(self) -> bool:
        """Whether the log level includes these lines."""
        return log.isEnabledFor(logging.INFO)

    def record(self, uid: str, namespace: str, pod: str, summary: str) -> None:
        """Add a line about a decision, which the next flush writes."""
        if not self._pending:
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
        # Long names are shortened here and not in `flush`, because they would occupy memory until
        # then.
        limit = _MAX_LINE_CHARACTERS
        texts = uid[:limit], namespace[:limit], pod[:limit], summary
        self._pending.append(texts)

    def flush(self) -> None:
        """Write all lines that were added since the last flush."""
        pending, self._pending = self._pending, []
        lines = [
            printable(f"uid {uid} pod {namespace}/{pod}: {summary}", _MAX_LINE_CHARACTERS)
            for uid, namespace, pod, summary in pending
        ]
        if lines:
            log.info("%s", "\n".join(lines))
