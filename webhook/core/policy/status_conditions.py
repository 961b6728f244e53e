"""The conditions in a SettlePolicy's status, in the form of KEP-1623."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from webhook.core.cluster.view import ClusterView
from webhook.core.constants import LABEL_POLICY
from webhook.core.policy.crd import CRD_NAME
from webhook.core.policy.crd_comparison import CrdDifference
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.validation_errors import FieldError
from webhook.core.policy.webhook_selectors import WebhookSelectors
from webhook.core.printable import list_first
from webhook.core.types import Json

Status: TypeAlias = Literal["True", "False", "Unknown"]

_MAX_NAMED_FIELDS = 5
"""The maximum number of fields in a message, because people read it in a terminal."""
_MAX_ERRORS = 10
"""The maximum number of errors in the message of the condition Accepted."""


class Condition(NamedTuple):
    """One condition, without the time of its last transition."""

    type: str
    status: Status
    reason: str
    message: str


def accepted(problems: Sequence[FieldError], earlier_in_force: bool) -> Condition:
    """Return the condition Accepted: whether the policy is valid.

    `earlier_in_force` says whether an earlier, valid state of the policy is in force. It matters
    only for an invalid policy.
    """
    if not problems:
        return Condition("Accepted", "True", "Valid", "The policy is in force.")
    listed = list_first([*map(str, problems)], _MAX_ERRORS, "; ", "; ")
    what = "The last valid state stays in force" if earlier_in_force else "Not in force"
    return Condition("Accepted", "False", "Invalid", f"{what}: {listed}")


def crd_current(difference: CrdDifference | None) -> Condition:
    """Return the condition CRDCurrent: whether the installed CRD has every field of this release.

    `difference` is None if the installed CRD could not be read.
    """
    if difference is None:
        message = f"CustomResourceDefinition {CRD_NAME} could not be read; /readyz says why."
        return Condition("CRDCurrent", "Unknown", "NotRead", message)
    if difference.lacks:
        return Condition("CRDCurrent", "False", "Outdated", f"{crd_note(difference)}.")
    if difference.other_defaults:
        return Condition("CRDCurrent", "Unknown", "OtherDefaults", f"{crd_note(difference)}.")
    message = "The installed CRD has every field that podsettle reads."
    return Condition("CRDCurrent", "True", "Current", message)


def crd_note(difference: CrdDifference) -> str:
    """Return how an installed CRD differs from this release's, and what to do about it.

    The result is empty if they agree.
    """
    apply = "kubectl apply --server-side --force-conflicts -f charts/podsettle/crds"
    if difference.lacks:
        return (
            f"CustomResourceDefinition {CRD_NAME} is older than podsettle and lacks "
            f"{list_first(difference.lacks, _MAX_NAMED_FIELDS)}. The API server drops these fields "
            "from policies without an error, and refuses these values. Apply the CRD of this "
            f"release: {apply}"
        )
    if difference.other_defaults:
        return (
            f"CustomResourceDefinition {CRD_NAME} has other defaults than podsettle: "
            f"{list_first(difference.other_defaults, _MAX_NAMED_FIELDS)}. New policies get the "
            "defaults of the installed CRD. Unless it is of a newer release, apply the CRD of this "
            f"release: {apply}"
        )
    return ""


def webhook_scoped(policy: SettlePolicy, selectors: WebhookSelectors) -> Condition:
    """Return the condition WebhookScoped.

    It says whether the API server evaluates the policy's selectors before it calls podsettle.
    """
    if policy.spec.namespace_selector is None:
        message = (
            f"The API server calls podsettle for the pods of namespaces labelled "
            f"{LABEL_POLICY}: {policy.metadata.name}."
        )
        return Condition("WebhookScoped", "True", "OptIn", message)
    if selectors.merged_because:
        message = (
            f"Broad, because {selectors.merged_because}. One webhook serves all policies, so the "
            "API server also calls podsettle for pods that no policy covers. With failurePolicy: "
            "Fail it refuses those pods too while podsettle is down."
        )
        return Condition("WebhookScoped", "False", "TooManySelectors", message)
    message = "The API server calls podsettle only for pods that the selectors of policies match."
    return Condition("WebhookScoped", "True", "Selectors", message)


def runtime_classes_found(policy: SettlePolicy, view: ClusterView) -> Condition:
    """Return the condition RuntimeClassesFound: whether the policy's RuntimeClasses exist."""
    names = policy.spec.runtime_classes()
    missing = [name for name in names if name not in view.runtime_classes]
    if missing:
        message = f"RuntimeClass {', '.join(missing)} does not exist. Its remedy is skipped."
        return Condition("RuntimeClassesFound", "False", "RuntimeClassMissing", message)
    if not names:
        message = "The policy names no RuntimeClass."
        return Condition("RuntimeClassesFound", "True", "NoneNamed", message)
    message = f"RuntimeClass {', '.join(names)} exists."
    return Condition("RuntimeClassesFound", "True", "Found", message)


def merge_conditions(
    conditions: Iterable[Condition], stored: Iterable[Mapping[str, Any]], generation: int, now: str
) -> list[Json]:
    """Return the conditions in the form in which the API stores them.

    A condition with the same status as the stored one keeps its lastTransitionTime. Any other
    condition gets `now`.
    """
    times = {
        (each.get("type"), each.get("status")): each.get("lastTransitionTime", now)
        for each in stored
    }
    return [
        {
            "type": each.type,
            "status": each.status,
            "observedGeneration": generation,
            "lastTransitionTime": str(times.get((each.type, each.status), now)),
            "reason": each.reason,
            "message": each.message,
        }
        for each in conditions
    ]
