"""The explanation of a reason code. It needs no cluster."""

from __future__ import annotations

from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.inspect.explain.advice import ADVICE
from webhook.inspect.explain.model import ReasonExplanation


def explain_reason(reason: Reason, docs_url: str | None = None) -> ReasonExplanation:
    """Return what a reason code means. `docs_url` is the address of the page about reasons."""
    return ReasonExplanation(
        reason=reason,
        meaning=reason.meaning,
        warns=reason.warns,
        remedies=[name for name, remedy in REMEDIES.items() if reason in remedy.reasons],
        advice=ADVICE[reason],
        explanation=f"{docs_url}#{reason.lower()}" if docs_url else "",
    )
