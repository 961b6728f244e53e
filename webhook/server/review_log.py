"""The log of decisions: one record of `logging` for each review of a covered pod."""

from __future__ import annotations

import logging
from typing import Any

from webhook.core.admission.decision import Decision
from webhook.core.admission.review import Request

log = logging.getLogger(__name__)

_MAX_LINE_CHARACTERS = 2400
"""Maximum length of a line as text, because the reasons contain names from the pod."""
_MAX_NAME_CHARACTERS = 256
"""Maximum length of the uid and of each name, because a client chooses them. The API server accepts
names of up to 253 characters."""


def printable(text: str, max_characters: int = 128) -> str:
    """Return untrusted text as one line of limited length, so that it cannot forge log lines."""
    shortened = text[:max_characters]
    # An escape takes up to ten characters, so escaped text is shortened again.
    return shortened if shortened.isprintable() else ascii(shortened)[:max_characters]


class ReviewRecord(logging.LogRecord):
    """A record about a review, with the parts of its message as `fields` for structured logs.

    The fields are `uid`, `namespace`, `pod`, and the audit annotations `applied` and `skipped`.
    """

    def __init__(self, level: int, message: str, fields: dict[str, str]) -> None:
        super().__init__(__name__, level, __file__, 0, message, (), None)
        self.fields = fields


def log_review(request: Request[Any], decision: Decision) -> None:
    """Log a decision.

    If an earlier review has settled the pod, the record has the level DEBUG. The API server
    reviews many pods twice, and the first record says all.
    """
    level = logging.DEBUG if decision.already_settled else logging.INFO
    if not log.isEnabledFor(level):
        return
    # Long names are cut here and not in a formatter, because a handler may keep the record.
    limit = _MAX_NAME_CHARACTERS
    uid, pod = request.uid[:limit], request.pod.name[:limit]
    namespace = (request.namespace or "")[:limit]
    message = f"uid {uid} pod {namespace}/{pod}: {decision.log_summary}"
    fields = {"uid": uid, "namespace": namespace, "pod": pod, **decision.audit_annotations}
    # `Logger.info` would walk the stack to find this line, which takes longer than the record.
    log.handle(ReviewRecord(level, printable(message, _MAX_LINE_CHARACTERS), fields))
