"""Whether the API server calls podsettle for new pods, by its webhook configurations.

A decision says what podsettle does with a pod that it is asked about. The API server may not ask:
a selector leaves the pod out, or the configuration does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from webhook.cluster.reader import ClusterReader
from webhook.cluster.unread import NotAllowedError
from webhook.core.cluster.view import Namespace
from webhook.core.constants import LABEL_NAMESPACE_NAME
from webhook.core.labels import Labels
from webhook.core.policy.cluster_webhooks import OWN_MATCH_CONDITIONS
from webhook.core.types import Json
from webhook.inspect.installation import own_webhooks
from webhook.inspect.selectors import selector_matches
from webhook.inspect.webhook_configurations_api import CONFIGURATIONS_RIGHT


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
        if not self.webhooks:
            return _not_called("no MutatingWebhookConfiguration is podsettle's")
        for_pods = [each for each in self.webhooks if _is_for_new_pods(each)]
        if not for_pods:
            return _not_called("no rule of podsettle's webhooks is for the creation of pods")
        in_namespace = [
            each
            for each in for_pods
            if selector_matches(each.get("namespaceSelector"), namespace.labels)
        ]
        if not in_namespace:
            return _not_called(_why_not_in(namespace, for_pods))
        matching = [
            each for each in in_namespace if selector_matches(each.get("objectSelector"), labels)
        ]
        if not matching:
            return _not_called("no objectSelector of podsettle's webhooks matches the pod's labels")
        conditions = [_conditions_of_others(each) for each in matching]
        if all(conditions):
            names = ", ".join(dict.fromkeys(name for each in conditions for name in each))
            return WebhookCall(
                Called.UNKNOWN, f"its webhook has match conditions of the operator: {names}"
            )
        return WebhookCall(Called.YES)


async def read_webhook_calls(reader: ClusterReader) -> WebhookCalls:
    """Read podsettle's webhooks. Raises Unreachable, and ApiError for an unexpected response."""
    try:
        items = await reader.list(CONFIGURATIONS_RIGHT)
    except NotAllowedError:
        return WebhookCalls(readable=False)
    return WebhookCalls(tuple(each for one in items for _, each in own_webhooks(one)))


def _not_called(why: str) -> WebhookCall:
    return WebhookCall(Called.NO, why)


def _is_for_new_pods(webhook: Json) -> bool:
    """Return whether a rule of a webhook includes the creation of pods."""
    return any(
        _includes(rule.get("operations"), "CREATE")
        and _includes(rule.get("apiGroups"), "")
        and _includes(rule.get("apiVersions"), "v1")
        and not {"pods", "*", "*/*"}.isdisjoint(rule.get("resources") or ())
        and rule.get("scope", "*") in ("*", "Namespaced")
        for rule in webhook.get("rules") or ()
    )


def _includes(values: list[str] | None, wanted: str) -> bool:
    return not {wanted, "*"}.isdisjoint(values or ())


def _why_not_in(namespace: Namespace, webhooks: list[Json]) -> str:
    """Return why no webhook includes a namespace."""
    without_name = {k: v for k, v in namespace.labels.items() if k != LABEL_NAMESPACE_NAME}
    if any(selector_matches(each.get("namespaceSelector"), without_name) for each in webhooks):
        return f"the webhook configuration excludes namespace {namespace.name} by name"
    return f"no namespaceSelector of podsettle's webhooks matches namespace {namespace.name}"


def _conditions_of_others(webhook: Json) -> list[str]:
    """Return the names of the match conditions that podsettle does not write.

    They are expressions of CEL, which only the API server evaluates.
    """
    conditions = webhook.get("matchConditions") or ()
    return [each["name"] for each in conditions if each["name"] not in OWN_MATCH_CONDITIONS]
