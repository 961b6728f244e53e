"""What a new pod would get today, and why it would get nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.core.preview.model import PodPreview
from webhook.core.reasons import NO_DECISION
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.webhook_calls import Called, WebhookCall

_MAX_SENTENCES = 20
"""The maximum number of remedies without a container that are named, because people read them."""
_MAX_NAMES = 5
"""The maximum number of containers that a sentence names."""


def would_change(today: PodPreview | None) -> bool:
    """Return whether podsettle would apply a remedy. A patch of notes alone applies none."""
    return today is not None and any(outcome.changed for outcome in today.outcomes)


def missing_decision(today: PodPreview | None) -> str:
    """Return why podsettle made no decision, in a sentence. Empty if it made one."""
    outcomes = today.outcomes if today is not None else ()
    failed = next((each for each in outcomes if each.reason in NO_DECISION), None)
    return f"{failed.reason}: {failed.message}" if failed is not None else ""


def is_called(call: WebhookCall | None) -> bool:
    """Return whether the API server calls podsettle, as far as is known."""
    return call is None or call.called is not Called.NO


def next_pod_notes(
    today: PodPreview | None, call: WebhookCall | None, flags: ClusterFlags
) -> Iterator[str]:
    """Yield why a new pod would get nothing, although a policy covers it.

    `flags` are those of printed commands.
    """
    if call is not None and call.called is Called.NO:
        why = f"The API server does not call podsettle for such a pod: {call.why}."
        yield f"{why} {doctor_sentence(flags)}"
    if today is not None:
        yield from _unselected(today)


def doctor_sentence(flags: ClusterFlags) -> str:
    """Return a sentence with the command that checks the installation."""
    return f"`{flags.add_to('podsettle doctor')}` checks the installation."


def _unselected(today: PodPreview) -> Iterator[str]:
    """Yield a sentence for each remedy that selects none of the pod's containers.

    Such a remedy has no outcome, because an outcome is about a container or about the whole pod.
    """
    if not today.policies:
        return
    having_outcomes = {outcome.remedy for outcome in today.outcomes}
    unselected = [
        (match.policy, remedy)
        for match in today.policy_matches
        for remedy in match.acting
        if remedy not in having_outcomes
    ]
    for policy, remedy in unselected[:_MAX_SENTENCES]:
        yield (
            f"Policy {policy} covers the pod, but its remedy {remedy} selects none of the pod's "
            f"containers. {_container_names(today.before)}"
        )


def _container_names(pod: Mapping[str, Any]) -> str:
    """Return the names of a pod's containers, in a sentence."""
    lists = (("init containers", "initContainers"), ("other containers", "containers"))
    parts = []
    for title, field in lists:
        names = [str(each["name"]) for each in pod["spec"].get(field) or ()]
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        named = f"the {title} {', '.join(names[:_MAX_NAMES])}{more}" if names else f"no {title}"
        parts.append(named)
    return f"The pod has {' and '.join(parts)}."
