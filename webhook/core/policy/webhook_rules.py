"""The webhooks by which the API server asks podsettle, with selectors that it evaluates itself.

The chart registers one for the namespaces that opt in by label. Further ones, for the rest, exist
only while policies select namespaces: one for each pair of selectors (`pairs`). They are
copies of the first one but for their selectors and more match conditions, so that what the operator
has set there (failure policy, exclusions) holds for all. So does the timeout, unless there are so
many that it has to be shorter (MAX_TOTAL_TIMEOUT_SECONDS).

For a webhook with match conditions, be it one or ten, the API server converts every pod that its
selectors match for CEL, and once more to see whether to ask again. That costs every pod what a
second call costs, and only some pods get one: those that something else changed after podsettle, or
into which podsettle put an init container, where the API server then mounts a token. So the chart's
webhook has none. The others cannot do without `not-protected`, and beside that the rest cost
nothing. Of these, `not-settled` keeps a pod that one webhook has settled from the next. A pod that
podsettle left as it is carries no mark: each webhook that matches it is called, to no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

from webhook.core.constants import (
    ANNOTATION_MIRROR,
    ANNOTATION_SETTLED,
    GROUP,
    LABEL_ENABLED,
    LABEL_NAMESPACE_NAME,
    LABEL_POLICY,
    SYSTEM_NAMESPACES,
)
from webhook.core.policy.webhook_selectors import LabelRequirement, SelectorPair, WebhookSelectors

Json: TypeAlias = dict[str, Any]

OPT_IN_WEBHOOK = f"opt-in.{GROUP}"
"""The webhook for namespaces that name a policy by label."""

MAX_TOTAL_TIMEOUT_SECONDS = 25
"""How long a pod that all webhooks for selected namespaces match may wait for them together.

They are called one after the other, so that a podsettle that hangs costs the timeout of each. A
request that takes longer than the API server's `--request-timeout`, 60 s by default, is refused
whatever the failure policy says. In the 60 s they may have to be called twice (reinvocation)."""
_DEFAULT_TIMEOUT_SECONDS = 10
"""The API server's, where a webhook has none."""


def _lacks_annotation(annotation: str) -> str:
    annotations = "object.metadata.annotations"
    return f'!has({annotations}) || !("{annotation}" in {annotations})'


_FINGERPRINT = ' + "/" + '.join(
    f"string(has(object.{field}) ? size(object.{field}) : 0)"
    for field in ("spec.containers", "spec.initContainers", "spec.volumes", "metadata.labels")
)
"""`PodPatch.size` in CEL."""

# None of them can be in error: an error would count as a webhook that failed.
_NOT_MIRROR = _lacks_annotation(ANNOTATION_MIRROR)
_NOT_WINDOWS = '!has(object.spec.os) || object.spec.os.name != "windows"'
_NOT_SETTLED = (
    f"{_lacks_annotation(ANNOTATION_SETTLED)}"
    f' || object.metadata.annotations["{ANNOTATION_SETTLED}"] != {_FINGERPRINT}'
)


def cluster_webhooks(opt_in: Mapping[str, Any], selectors: WebhookSelectors) -> list[Json]:
    """The webhooks for namespaces that policies select.

    Takes the entry OPT_IN_WEBHOOK of a MutatingWebhookConfiguration, and what the policies select.

    Labels of a pod are evaluated when it is the webhook's turn. One that another webhook adds later
    does not count, not even when the API server calls again: it calls those again whose scope held
    the first time (kubernetes `admission/plugin/webhook/mutating/dispatcher.go`).
    """
    wanted = opt_in.get("timeoutSeconds", _DEFAULT_TIMEOUT_SECONDS)
    timeout = max(1, min(wanted, MAX_TOTAL_TIMEOUT_SECONDS // max(1, len(selectors.by_webhook))))
    return [
        _cluster_webhook(opt_in, name, pair, timeout)
        for name, pair in sorted(selectors.by_webhook.items())
    ]


def _cluster_webhook(
    opt_in: Mapping[str, Any], name: str, pair: SelectorPair, timeout_seconds: int
) -> Json:
    excluded = _excluded_namespaces(opt_in)
    if opt_in.get("failurePolicy") != "Fail":
        # A policy may name a namespace that is otherwise left alone. Where an outage of podsettle
        # would keep pods from being created, the operator's exclusions stand.
        excluded -= pair.named_namespaces
    made = deepcopy(dict(opt_in))
    made["name"] = name
    made["timeoutSeconds"] = timeout_seconds
    made["namespaceSelector"] = _namespace_selector(
        opt_in, excluded | _own_namespace(opt_in), pair.namespaces
    )
    if pair.pods:
        selector = made.get("objectSelector") or {}
        others = selector.get("matchExpressions") or ()
        selector["matchExpressions"] = [*others, *_match_expressions(pair.pods)]
        made["objectSelector"] = selector
    made["matchConditions"] = _match_conditions(opt_in, pair.named_namespaces)
    return made


def _namespace_selector(
    opt_in: Mapping[str, Any], excluded: Iterable[str], requirements: Iterable[LabelRequirement]
) -> Json:
    """The first webhook's selector, for the namespaces that name no policy."""
    selector: Json = deepcopy(opt_in.get("namespaceSelector") or {})
    selector["matchExpressions"] = [
        {"key": LABEL_POLICY, "operator": "DoesNotExist"},
        {"key": LABEL_ENABLED, "operator": "NotIn", "values": ["false"]},
    ]
    if names := sorted(excluded):
        expression = {"key": LABEL_NAMESPACE_NAME, "operator": "NotIn", "values": names}
        selector["matchExpressions"].append(expression)
    selector["matchExpressions"] += [
        # What platforms add to every webhook's selector, for example: they would add it again.
        deepcopy(expression)
        for expression in _namespace_expressions(opt_in)
        if expression["key"] not in (LABEL_POLICY, LABEL_ENABLED, LABEL_NAMESPACE_NAME)
    ]
    selector["matchExpressions"] += _match_expressions(requirements)
    return selector


def _match_expressions(requirements: Iterable[LabelRequirement]) -> list[Json]:
    """Demands as `matchExpressions`, in an order that is always the same."""
    return [
        {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
        for key, operator, values in sorted(requirements)
    ]


def _namespace_expressions(webhook: Mapping[str, Any]) -> list[Json]:
    expressions: list[Json] = (webhook.get("namespaceSelector") or {}).get("matchExpressions") or []
    return expressions


def _excluded_namespaces(opt_in: Mapping[str, Any]) -> frozenset[str]:
    """The namespaces that the operator excludes by name."""
    return frozenset(
        value
        for expression in _namespace_expressions(opt_in)
        if expression["key"] == LABEL_NAMESPACE_NAME and expression["operator"] == "NotIn"
        for value in expression["values"]
    )


def _own_namespace(opt_in: Mapping[str, Any]) -> frozenset[str]:
    """The namespace of the webhook's own Service: podsettle must never wait for itself."""
    service = opt_in.get("clientConfig", {}).get("service")
    return frozenset({service["namespace"]} if service else ())


def _match_conditions(opt_in: Mapping[str, Any], named: frozenset[str]) -> list[Json]:
    """podsettle's own, and those that the operator has put on the first webhook.

    Earlier charts put three of podsettle's there, and the API server takes no name twice. Until
    Helm has taken them away, those made here count.
    """
    own = {
        "not-mirror": _NOT_MIRROR,
        "not-windows": _NOT_WINDOWS,
        "not-settled": _NOT_SETTLED,
        "not-protected": _not_protected(named),
    }
    others = [each for each in opt_in.get("matchConditions") or () if each["name"] not in own]
    return [*({"name": name, "expression": own[name]} for name in own), *deepcopy(others)]


def _not_protected(named: frozenset[str]) -> str:
    """A selector cannot tell prefixes; a match condition can (KEP-3716)."""
    prefixes = " || ".join(f'request.namespace.startsWith("{p}")' for p in SYSTEM_NAMESPACES)
    protected = sorted(name for name in named if name.startswith(SYSTEM_NAMESPACES))
    names = ", ".join(f'"{name}"' for name in protected)
    return f"!({prefixes})" + (f" || request.namespace in [{names}]" if names else "")
