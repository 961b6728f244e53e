"""Whether the API server calls podsettle for new pods, by its webhook configurations.

A decision says what podsettle does with a pod that it is asked about. The API server may not ask:
a selector leaves the pod out, or the configuration does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from webhook.cluster.reader import ClusterReader
from webhook.cluster.unread import NotAllowedError
from webhook.core.cluster.view import Namespace
from webhook.core.constants import LABEL_NAMESPACE_NAME
from webhook.core.labels import Labels
from webhook.core.policy.cluster_webhooks import OWN_MATCH_CONDITIONS
from webhook.core.types import Json
from webhook.inspect.installation import CONFIGURATIONS_RIGHT, own_webhooks
from webhook.inspect.selectors import selector_matches


class Called(StrEnum):
    """Whether the API server calls podsettle for a pod."""

    YES = "True"
    NO = "False"
    UNKNOWN = "Unknown"


class WebhookCall(NamedTuple):
    """Whether the API server calls podsettle for a new pod, and why not."""

    called: Called
    why: str = ""
    """A clause. Empty if podsettle is called."""


@dataclass(frozen=True, slots=True)
class WebhookCalls:
    """podsettle's webhooks in all webhook configurations of a cluster."""

    webhooks: tuple[Json, ...] = ()
    readable: bool = True
    """Whether the user may read the configurations."""

    def call_for(self, namespace: Namespace, labels: Labels) -> WebhookCall:
        """Return whether the API server calls podsettle for a new pod with these labels."""
        if not self.readable:
            return WebhookCall(Called.UNKNOWN, f"it needs the right to {CONFIGURATIONS_RIGHT}")
        for_pods = list(filter(_is_for_new_pods, self.webhooks))
        in_namespace = _selecting("namespaceSelector", for_pods, namespace.labels)
        matching = _selecting("objectSelector", in_namespace, labels)
        if not self.webhooks:
            return WebhookCall(Called.NO, "no MutatingWebhookConfiguration is podsettle's")
        if not for_pods:
            why = "no rule of podsettle's webhooks is for the creation of pods"
            return WebhookCall(Called.NO, why)
        if not in_namespace:
            others = {k: v for k, v in namespace.labels.items() if k != LABEL_NAMESPACE_NAME}
            why = f"no namespaceSelector of podsettle's webhooks matches namespace {namespace.name}"
            if _selecting("namespaceSelector", for_pods, others):
                why = f"the webhook configuration excludes namespace {namespace.name} by name"
            return WebhookCall(Called.NO, why)
        if not matching:
            why = "no objectSelector of podsettle's webhooks matches the pod's labels"
            return WebhookCall(Called.NO, why)
        # Only the API server evaluates conditions, which are expressions of CEL.
        conditions = [
            {each["name"] for each in webhook.get("matchConditions") or ()} - OWN_MATCH_CONDITIONS
            for webhook in matching
        ]
        if all(conditions):
            names = ", ".join(sorted(set(chain.from_iterable(conditions))))
            why = f"its webhook has match conditions of the operator: {names}"
            return WebhookCall(Called.UNKNOWN, why)
        return WebhookCall(Called.YES)


async def read_webhook_calls(reader: ClusterReader) -> WebhookCalls:
    """Read podsettle's webhooks. Raises Unreachable, and ApiError for an unexpected response."""
    try:
        items = await reader.list(CONFIGURATIONS_RIGHT)
    except NotAllowedError:
        return WebhookCalls(readable=False)
    return WebhookCalls(tuple(chain.from_iterable(map(own_webhooks, items))))


def _is_for_new_pods(webhook: Json) -> bool:
    """Return whether a rule of a webhook includes the creation of pods."""
    return any(
        not {"CREATE", "*"}.isdisjoint(rule.get("operations") or ())
        and not {"", "*"}.isdisjoint(rule.get("apiGroups") or ())
        and not {"v1", "*"}.isdisjoint(rule.get("apiVersions") or ())
        and not {"pods", "*", "*/*"}.isdisjoint(rule.get("resources") or ())
        and rule.get("scope", "*") in ("*", "Namespaced")
        for rule in webhook.get("rules") or ()
    )


def _selecting(selector: str, webhooks: list[Json], labels: Labels) -> list[Json]:
    """Return the webhooks one of whose selectors matches labels."""
    return [each for each in webhooks if selector_matches(each.get(selector), labels)]
