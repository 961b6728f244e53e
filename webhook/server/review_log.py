"""Lines of the log about reviews, made and written together fifty times a second.

One by one, they would cost a fifth of the time that a review takes.
"""

from __future__ import annotations

import asyncio
import logging

_SECONDS = 0.02
"""That a line may be late. Many lines at once would keep a review waiting."""
_LONGEST = 2400


def printable(text: str, longest: int = 128) -> str:
    """A text from outside as one line of bounded length: nobody else writes lines of the log."""
    cut = text[:longest]
    return cut if cut.isprintable() else ascii(cut)


class ReviewLog:
    """What is told of reviews that nothing went wrong with. For use on the event loop."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._decided: list[tuple[str, str, str, str]] = []

    @property
    def enabled(self) -> bool:
        """Whether anybody wants to read it."""
        return self._log.isEnabledFor(logging.INFO)

    def record(self, uid: str, namespace: str, pod: str, summary: str) -> None:
        """Write what was decided on a pod, soon."""
        if not self._decided:
            asyncio.get_running_loop().call_later(_SECONDS, self.flush)
        # The beginnings: what comes with a review may be long, and many may come in one moment.
        texts = uid[:_LONGEST], namespace[:_LONGEST], pod[:_LONGEST], summary
        self._decided.append(texts)

    def flush(self) -> None:
        """Write what is still to be written."""
        decided, self._decided = self._decided, []
        lines = [
            printable(f"uid {uid} pod {namespace}/{pod}: {summary}", _LONGEST)
            for uid, namespace, pod, summary in decided
        ]
        if lines:
            self._log.info("%s", "\n".join(lines))
