"""The log of decisions: one line for each review of a covered pod.

The lines of at most 20 ms are one record of `logging`. With one record for each line, behind a
MemoryHandler, the server answered a quarter fewer reviews in a second of CPU time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from webhook.core.admission.decision import Decision
from webhook.core.admission.review import Request
from webhook.core.printable import printable

log = logging.getLogger(__name__)

_FLUSH_SECONDS = 0.02
"""Maximum delay of a line. With a longer delay, batches would grow and delay reviews."""
_MAX_PENDING_LINES = 200
"""Maximum number of lines that wait. Clients choose names, so a line can take 20 KB until then."""
_MAX_LINE_CHARACTERS = 2400
"""Maximum length of a line as text, because the reasons contain names from the pod."""
_MAX_NAME_CHARACTERS = 256
"""Maximum length of the uid and of each name, because a client chooses them. The API server accepts
names of up to 253 characters."""


def one_line(text: str, max_characters: int = 128) -> str:
    """Return untrusted text as one line of limited length, so that it cannot forge log lines."""
    # An escape takes up to ten characters, so escaped text is shortened again.
    return printable(text[:max_characters])[:max_characters]


# A plain tuple, because each review makes one: uid, namespace, pod, the reasons as text, and the
# reasons as the audit annotations `applied` and `skipped`.
_Entry: TypeAlias = tuple[str, str, str, str, Mapping[str, str]]


class ReviewLines:
    """The message of a record: one line for each review."""

    def __init__(self, entries: Sequence[_Entry]) -> None:
        self._entries = entries

    def __str__(self) -> str:
        """Return the lines as text."""
        return "\n".join([_format(*entry) for entry in self._entries])

    def with_fields(self) -> list[tuple[str, dict[str, str]]]:
        """Return each line as text and in parts, for structured logs."""
        return [
            (_format(*entry), {"uid": uid, "namespace": namespace, "pod": pod, **reasons})
            for entry in self._entries
            for uid, namespace, pod, _, reasons in (entry,)
        ]


class ReviewLog:
    """A buffer of lines about decisions. Use it on the event loop only."""

    def __init__(self) -> None:
        self._pending: list[_Entry] = []

    def record(self, request: Request[Any], decision: Decision) -> None:
        """Add a line about a decision, which the next flush writes.

        If an earlier review has settled the pod, the line has the level DEBUG. The API server
        reviews many pods twice, and the first line says all.
        """
        level = logging.DEBUG if decision.already_settled else logging.INFO
        if not log.isEnabledFor(level):
            return
        # Long names are cut here and not in `flush`, because they would occupy memory until then.
        limit = _MAX_NAME_CHARACTERS
        entry = (
            request.uid[:limit],
            (request.namespace or "")[:limit],
            request.pod_name[:limit],
            decision.texts.log_summary,
            decision.texts.audit_annotations,
        )
        if level == logging.DEBUG:
            self.flush()
            log.debug(ReviewLines([entry]))
            return
        if not self._pending:
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
        self._pending.append(entry)
        if len(self._pending) >= _MAX_PENDING_LINES:
            self.flush()

    def flush(self) -> None:
        """Write all lines that were added since the last flush.

        Call it before another record about a review, so that the log has the order of events.
        """
        pending, self._pending = self._pending, []
        if pending:
            log.info(ReviewLines(pending))


def _format(uid: str, namespace: str, pod: str, summary: str, _: Mapping[str, str]) -> str:
    return one_line(f"uid {uid} pod {namespace}/{pod}: {summary}", _MAX_LINE_CHARACTERS)
