"""Which pods a policy covers, in CEL: selectors, and what no policy ever changes."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.core.cel import CONTAINERS, NODE_TERMS, any_of, quote, quoted_list
from webhook.core.cluster.nodes import WINDOWS_LABEL
from webhook.core.constants import (
    ANNOTATION_MIRROR,
    ANNOTATION_SKIP,
    LABEL_NAMESPACE_NAME,
    LABEL_POLICY,
    SYSTEM_NAMESPACE_PREFIXES,
)
from webhook.core.policy.cluster_webhooks import not_protected
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.selectors import LabelSelector
from webhook.core.types import Json

_MAX_CONTAINERS = 100
"""The maximum number of containers in a pod that is changed. The API server limits the cost of an
expression, and some go through all containers."""
_MAX_ANNOTATIONS_BYTES = 252 * 1024
"""The size of a pod's annotations up to which podsettle's own still fit: the API server accepts 256
KiB, and podsettle writes less than 4 KiB."""

_LABELS = ("kubernetes.io/os", "beta.kubernetes.io/os")
_LABEL_OF_OS = ".or(".join(f'object.spec.?nodeSelector[?"{label}"]' for label in _LABELS) + ")"
_FOR_WINDOWS = (
    "securityContext.?windowsOptions.optMap(options, size(dyn(options)) > 0).orValue(false)"
)
_NOT_WINDOWS = f"""\
has(object.spec.os) ? object.spec.os.name != "windows"
: {_LABEL_OF_OS}.hasValue()
  ? {_LABEL_OF_OS}.orValue("") != "windows"
: !object.spec.?nodeSelector[?"{WINDOWS_LABEL}"].hasValue()
  && !object.spec.?{_FOR_WINDOWS}
  && !{CONTAINERS}.exists(c, c.?{_FOR_WINDOWS})
  && (size({NODE_TERMS}) == 0
  || {NODE_TERMS}
    .exists(term, !term.?matchExpressions.orValue([]).exists(label,
      label.key == "{WINDOWS_LABEL}" ? label.operator in ["In", "Exists"]
      : label.key in {quoted_list(_LABELS)} && has(label.values)
      && (label.operator == "In" ? label.values.all(value, value == "windows")
        : label.operator == "NotIn" && "linux" in label.values))))"""
"""`runs_on_windows` in CEL."""


def match_conditions(policy: SettlePolicy, own_namespace: str | None) -> dict[str, str]:
    """Return the conditions, by name, without which no policy changes a pod.

    They read `object` and `request` only. Match conditions see neither variables nor the namespace.
    """
    annotations = "object.metadata.?annotations"
    inits, key_bytes = "object.spec.?initContainers.orValue([])", "size(bytes(key))"
    value_bytes = "size(bytes(object.metadata.annotations[key]))"
    return {
        "not-protected": not_protected(_named_protected(policy), own_namespace),
        "not-mirror": f'!{annotations}[?"{ANNOTATION_MIRROR}"].hasValue()',
        "not-windows": _NOT_WINDOWS,
        "not-opted-out": f'{annotations}[?"{ANNOTATION_SKIP}"].orValue("").trim() != "true"',
        "few-containers": f"size(object.spec.containers) + size({inits}) <= {_MAX_CONTAINERS}",
        "space-for-annotations": f"{annotations}.orValue({{}})\n"
        f".map(key, {key_bytes} + {value_bytes}).sum() <= {_MAX_ANNOTATIONS_BYTES}",
    }


def _named_protected(policy: SettlePolicy) -> frozenset[str]:
    """Return the protected namespaces that a policy covers, because its selector names them."""
    named = policy.spec.named_namespaces
    return frozenset(name for name in named if name.startswith(SYSTEM_NAMESPACE_PREFIXES))


def covers(policy: SettlePolicy, other: SettlePolicy, own_namespace: str | None) -> str:
    """Return whether a policy covers the pod, in CEL, where another one covers it too.

    The expression reads the variables `labels` and `namespaceLabels`.
    """
    name, selector = policy.metadata.name, policy.spec.namespace_selector
    by_label = [f'variables.namespaceLabels[?"{LABEL_POLICY}"].orValue("") == {quote(name)}']
    by_selector = list(_requirements(selector or LabelSelector(), "variables.namespaceLabels"))
    if _named_protected(other):
        # The other policy covers protected namespaces, and this one only those that it names.
        by_label.append(not_protected((), own_namespace))
        by_selector.append(f"({not_protected(_named_protected(policy), own_namespace)})")
    namespaces = [f"({' && '.join(tests)})" for tests in (by_selector, by_label) if tests]
    if selector is None:
        namespaces = namespaces[-1:]
    elif not by_selector:
        namespaces = []
    pods = list(_requirements(policy.spec.pod_selector, "variables.labels"))
    parts = [*([any_of(*namespaces)] if namespaces else []), *pods]
    return "\n&& ".join(parts) or "true"


def _requirements(selector: LabelSelector, labels: str) -> Iterable[str]:
    """Yield the requirements of a selector on labels, each in parentheses if it needs them."""
    for key, value in selector.match_labels.items():
        yield f"{labels}[?{quote(key)}] == optional.of({quote(value)})"
    for requirement in selector.match_expressions:
        key = quote(requirement.key)
        is_listed = f"({key} in {labels} && {labels}[{key}] in {quoted_list(requirement.values)})"
        yield {
            "In": is_listed,
            "NotIn": f"!{is_listed}",
            "Exists": f"{key} in {labels}",
            "DoesNotExist": f"!({key} in {labels})",
        }[requirement.operator]


def selector_document(selector: LabelSelector) -> Json:
    """Return a label selector as the API has it."""
    dumped = selector.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {key: value for key, value in dumped.items() if value}


def namespace_selectors(policy: SettlePolicy) -> dict[str, Json]:
    """Return the selectors of the namespaces that a policy covers, by the ends of their names.

    A selector has no "or", so namespaces that opt in by label have one of their own. A protected
    namespace cannot opt in by label.
    """
    selector = policy.spec.namespace_selector
    selectors = {} if selector is None else {"": selector_document(selector)}
    if selectors == {"": {}}:
        return selectors
    by_label: Json = {"matchLabels": {LABEL_POLICY: policy.metadata.name}}
    if named := sorted(_named_protected(policy)):
        by_label["matchExpressions"] = [
            {"key": LABEL_NAMESPACE_NAME, "operator": "NotIn", "values": named}
        ]
    return {**selectors, "opt-in": by_label}
