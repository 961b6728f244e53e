"""The cluster webhooks: entries of podsettle's MutatingWebhookConfiguration that podsettle writes.

The chart registers the opt-in webhook for namespaces that name a policy by label. Cluster webhooks
serve the other namespaces. They exist only while policies select namespaces, one for each pair of
selectors (`webhook_selectors`). A cluster webhook is a copy of the opt-in webhook with its own
selectors and more match conditions. So the operator's failure policy, exclusions and timeout hold
for all webhooks. Only the timeout is shorter if there are many (MAX_TOTAL_TIMEOUT_SECONDS).

The opt-in webhook has no match conditions because they cost time. If a webhook has any, the API
server converts every pod that the selectors match for CEL, twice if it considers a second call.
That costs as much as a second call. But only some pods get a second call: pods that another webhook
changed after podsettle, and pods with a new init container, into which the API server mounts a
token.

Cluster webhooks need the condition `not-protected`. The other conditions then cost nothing more.
`not-settled` prevents a call for a pod that another of podsettle's webhooks has changed. A pod that
podsettle left unchanged has no mark, so every webhook that matches it is called, without effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from webhook.core.cel import any_of, quote, quoted_list
from webhook.core.constants import (
    ANNOTATION_MIRROR,
    ANNOTATION_SETTLED,
    GROUP,
    LABEL_ENABLED,
    LABEL_NAMESPACE_NAME,
    LABEL_POLICY,
    SYSTEM_NAMESPACE_PREFIXES,
)
from webhook.core.policy.selectors import LabelRequirement
from webhook.core.policy.webhook_selectors import SelectorPair, WebhookSelectors
from webhook.core.types import Json

OPT_IN_WEBHOOK = f"opt-in.{GROUP}"
"""The name of the webhook for namespaces that name a policy by label."""

MAX_TOTAL_TIMEOUT_SECONDS = 25
"""The maximum sum of the timeouts of all cluster webhooks.

The API server calls them one after the other. If podsettle does not answer, a pod that all of them
match waits for the sum. The API server may call them twice (reinvocation), and it refuses requests
that take longer than its `--request-timeout`, 60 s by default, whatever the failure policy."""
_DEFAULT_TIMEOUT_SECONDS = 10
"""The timeout that the API server uses for a webhook without one."""


def _lacks_annotation(annotation: str) -> str:
    annotations = "object.metadata.annotations"
    return f'!has({annotations}) || !("{annotation}" in {annotations})'


_SETTLED_FINGERPRINT = ' + "/" + '.join(
    f"string(has(object.{field}) ? size(object.{field}) : 0)"
    for field in ("spec.containers", "spec.initContainers", "spec.volumes", "metadata.labels")
)
"""`PodPatch.settled_fingerprint` as a CEL expression."""

# None of these expressions may raise an error: it would count as a failure of the webhook.
_CONDITIONS = {
    "not-mirror": _lacks_annotation(ANNOTATION_MIRROR),
    "not-windows": '!has(object.spec.os) || object.spec.os.name != "windows"',
    "not-settled": f"{_lacks_annotation(ANNOTATION_SETTLED)}"
    f' || object.metadata.annotations["{ANNOTATION_SETTLED}"] != {_SETTLED_FINGERPRINT}',
}
_NOT_PROTECTED_NAME = "not-protected"
OWN_MATCH_CONDITIONS = frozenset({*_CONDITIONS, _NOT_PROTECTED_NAME})
"""The names of the match conditions that podsettle writes."""


def cluster_webhooks(opt_in: Mapping[str, Any], selectors: WebhookSelectors) -> list[Json]:
    """Return the cluster webhooks, as entries of a MutatingWebhookConfiguration.

    `opt_in` is the entry OPT_IN_WEBHOOK of the configuration.

    The objectSelector of a cluster webhook sees the labels that the pod has when the API server
    comes to that webhook. A label that a later webhook adds has no effect, because the API server
    reinvokes only webhooks that matched the first time (kubernetes
    `admission/plugin/webhook/mutating/dispatcher.go`).
    """
    configured = opt_in.get("timeoutSeconds", _DEFAULT_TIMEOUT_SECONDS)
    timeout = max(
        1, min(configured, MAX_TOTAL_TIMEOUT_SECONDS // max(1, len(selectors.by_webhook)))
    )
    return [
        _cluster_webhook(opt_in, name, pair, timeout)
        for name, pair in sorted(selectors.by_webhook.items())
    ]


def _cluster_webhook(
    opt_in: Mapping[str, Any], name: str, pair: SelectorPair, timeout_seconds: int
) -> Json:
    excluded = _excluded_namespaces(opt_in)
    if opt_in.get("failurePolicy") != "Fail":
        # A policy may name a namespace that the operator excludes. With failurePolicy: Fail the
        # exclusion stays: an outage of podsettle must not block pods there.
        excluded -= pair.named_namespaces
    webhook = deepcopy(dict(opt_in))
    webhook["name"] = name
    webhook["timeoutSeconds"] = timeout_seconds
    webhook["namespaceSelector"] = _namespace_selector(
        opt_in, excluded | _own_namespace(opt_in), pair.namespaces
    )
    if pair.pods:
        selector = webhook.get("objectSelector") or {}
        inherited = selector.get("matchExpressions") or ()
        selector["matchExpressions"] = [*inherited, *_match_expressions(pair.pods)]
        webhook["objectSelector"] = selector
    webhook["matchConditions"] = _match_conditions(opt_in, pair.named_namespaces)
    return webhook


def _namespace_selector(
    opt_in: Mapping[str, Any], excluded: Iterable[str], requirements: Iterable[LabelRequirement]
) -> Json:
    """Return the opt-in webhook's selector, changed to match namespaces that name no policy.

    `excluded` are names of namespaces, `requirements` those of a policy's `namespaceSelector`.
    """
    selector: Json = deepcopy(opt_in.get("namespaceSelector") or {})
    selector["matchExpressions"] = [
        {"key": LABEL_POLICY, "operator": "DoesNotExist"},
        {"key": LABEL_ENABLED, "operator": "NotIn", "values": ["false"]},
    ]
    if names := sorted(excluded):
        expression = {"key": LABEL_NAMESPACE_NAME, "operator": "NotIn", "values": names}
        selector["matchExpressions"].append(expression)
    selector["matchExpressions"] += [
        # Some platforms add expressions to the selector of every webhook. The copy keeps them:
        # otherwise the platform would add them again after each write of podsettle.
        deepcopy(expression)
        for expression in _namespace_expressions(opt_in)
        if expression["key"] != LABEL_POLICY
        and expression not in selector["matchExpressions"]
        and not _excludes_by_name(expression)
    ]
    selector["matchExpressions"] += _match_expressions(requirements)
    return selector


def _match_expressions(requirements: Iterable[LabelRequirement]) -> list[Json]:
    """Return requirements as `matchExpressions`, in a stable order."""
    return [
        {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
        for key, operator, values in sorted(requirements)
    ]


def _namespace_expressions(webhook: Mapping[str, Any]) -> list[Json]:
    expressions: list[Json] = (webhook.get("namespaceSelector") or {}).get("matchExpressions") or []
    return expressions


def _excludes_by_name(expression: Json) -> bool:
    return (expression["key"], expression["operator"]) == (LABEL_NAMESPACE_NAME, "NotIn")


def _excluded_namespaces(opt_in: Mapping[str, Any]) -> frozenset[str]:
    """Return the namespaces that the operator excludes by name."""
    return frozenset(
        value
        for expression in _namespace_expressions(opt_in)
        if _excludes_by_name(expression)
        for value in expression["values"]
    )


def _own_namespace(opt_in: Mapping[str, Any]) -> frozenset[str]:
    """Return the namespace of podsettle's Service. podsettle must never wait for itself."""
    service = opt_in.get("clientConfig", {}).get("service")
    return frozenset({service["namespace"]} if service else ())


def _match_conditions(opt_in: Mapping[str, Any], named: frozenset[str]) -> list[Json]:
    """Return podsettle's match conditions and the operator's conditions of the opt-in webhook.

    Earlier charts gave the opt-in webhook three conditions with podsettle's names. They are left
    out, because the API server refuses two conditions with one name.
    """
    expressions = {**_CONDITIONS, _NOT_PROTECTED_NAME: not_protected(named)}
    inherited = [
        condition
        for condition in opt_in.get("matchConditions") or ()
        if condition["name"] not in expressions
    ]
    return [
        *({"name": name, "expression": each} for name, each in expressions.items()),
        *deepcopy(inherited),
    ]


def not_protected(named: Iterable[str], own_namespace: str | None = None) -> str:
    """Return the CEL expression that excludes `own_namespace` and system namespaces but `named`.

    A label selector cannot match a prefix, but a match condition can (KEP-3716).
    """
    tests = [f"request.namespace.startsWith({quote(each)})" for each in SYSTEM_NAMESPACE_PREFIXES]
    if own_namespace:
        tests.append(f"request.namespace == {quote(own_namespace)}")
    protected = sorted(
        name for name in {*named} - {own_namespace} if name.startswith(SYSTEM_NAMESPACE_PREFIXES)
    )
    exception = f" || request.namespace in {quoted_list(protected)}" if protected else ""
    return f"!{any_of(*tests)}{exception}"
