"""What a new pod would get today, and why it would get nothing."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.core.preview.model import PodPreview
from webhook.core.reasons import NO_DECISION, Reason
from webhook.inspect.cluster_flags import ClusterFlags, podsettle
from webhook.inspect.webhook_calls import Called, WebhookCall


def would_change(today: PodPreview | None) -> bool:
    """Return whether podsettle would apply a remedy. A patch of notes alone applies none."""
    return today is not None and any(outcome.changed for outcome in today.outcomes)


def audit_clause(today: PodPreview | None) -> str:
    """Return that policies with `action: Audit` do not change the pod. Empty if there are none."""
    outcomes = today.outcomes if today is not None else ()
    names = dict.fromkeys(each.policy for each in outcomes if each.reason == Reason.WOULD_APPLY)
    if not names:
        return ""
    subject = "policy {} only reports" if len(names) == 1 else "policies {} only report"
    return f", because {subject.format(', '.join(names))} (`action: Audit`)"


def missing_decision(today: PodPreview | None) -> str:
    """Return why podsettle made no decision, in a sentence. Empty if it made one."""
    outcomes = today.outcomes if today is not None else ()
    failed = next((each for each in outcomes if each.reason in NO_DECISION), None)
    return f"{failed.reason}: {failed.message}" if failed is not None else ""


def is_called(call: WebhookCall | None) -> bool:
    """Return whether the API server calls podsettle, as far as is known."""
    return call is None or call.called is not Called.NO


def next_pod_notes(call: WebhookCall | None, flags: ClusterFlags) -> Iterator[str]:
    """Yield why the API server does not call podsettle for a new pod, if it does not.

    `flags` are those of printed commands.
    """
    if call is not None and call.called is Called.NO:
        why = f"The API server does not call podsettle for such a pod: {call.why}."
        yield f"{why} {doctor_sentence(flags)}"


def doctor_sentence(flags: ClusterFlags) -> str:
    """Return a sentence with the command that checks the installation."""
    return f"`{flags.command(podsettle('doctor'))}` checks the installation."
