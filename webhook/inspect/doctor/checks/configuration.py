"""The webhook configuration: whether it exists, and which namespaces it must not include."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook.cluster.rights import Right
from webhook.core.constants import LABEL_NAMESPACE_NAME, LABEL_POLICY
from webhook.core.policy.cluster_webhooks import OPT_IN_WEBHOOK
from webhook.core.types import Json
from webhook.inspect.doctor.checks.check import DoctorCheck
from webhook.inspect.doctor.commands import helm_upgrade, json_patch
from webhook.inspect.doctor.model import Result, fault, ok, unknown
from webhook.inspect.doctor.round_readings import Installed
from webhook.inspect.installation import own_webhooks
from webhook.inspect.selectors import selector_matches

_CONTROL_PLANE = "kube-system"


async def _check_exists(installed: Installed) -> list[Result]:
    installation = installed.installation
    configuration = await installed.configuration()
    title = f"MutatingWebhookConfiguration {installation.configuration}"
    if configuration is None:
        return [
            fault(
                f"{title} does not exist, so the API server does not call podsettle",
                "An operator deletes it to switch podsettle off. If podsettle is to work again, "
                "create it, or restore the back-up: docs/operations.md#switch-it-off.",
                helm_upgrade(installation),
            )
        ]
    webhooks = own_webhooks(configuration)
    if OPT_IN_WEBHOOK not in {each["name"] for _, each in webhooks}:
        return [
            fault(
                f"{title} has no webhook {OPT_IN_WEBHOOK}, from which podsettle derives the others",
                "Write the webhook of the chart again.",
                helm_upgrade(installation),
            )
        ]
    policies = sorted({str(each.get("failurePolicy")) for _, each in webhooks})
    count = "1 webhook" if len(webhooks) == 1 else f"{len(webhooks)} webhooks"
    return [ok(f"{title} has {count} with failurePolicy {' and '.join(policies)}")]


async def _check_own_namespace(installed: Installed) -> list[Result]:
    namespace = installed.installation.namespace
    return await _check_excluded(
        installed,
        namespace,
        f"podsettle's own namespace {namespace}",
        "podsettle would wait for itself: exclude the namespace.",
        failing_only=False,
    )


async def _check_control_plane(installed: Installed) -> list[Result]:
    return await _check_excluded(
        installed,
        _CONTROL_PLANE,
        f"{_CONTROL_PLANE}, with failurePolicy Fail",
        "An outage of podsettle would prevent pods of the control plane. Exclude the namespace, "
        "and keep it in the chart's value webhook.excludedNamespaces.",
        failing_only=True,
    )


async def _check_excluded(
    installed: Installed, namespace: str, scope: str, advice: str, *, failing_only: bool
) -> list[Result]:
    """Return whether the webhooks leave a namespace out."""
    configuration = await installed.configuration()
    if configuration is None:
        return [unknown("there is no webhook configuration")]
    found = await installed.reader.get(Right("get", "", "namespaces", name=namespace))
    if found is None:
        return [unknown(f"namespace {namespace} does not exist")]
    including = [
        (index, webhook)
        for index, webhook in own_webhooks(configuration)
        if (not failing_only or webhook.get("failurePolicy") == "Fail")
        and _includes(webhook, namespace, found["metadata"].get("labels") or {})
    ]
    if not including:
        return [ok(f"no webhook includes {scope}")]
    # podsettle derives the exclusions of the other webhooks from the opt-in webhook.
    opt_in = [each for each in including if each[1]["name"] == OPT_IN_WEBHOOK]
    operations = [
        operation
        for index, webhook in opt_in or including
        for operation in exclusion_operations(index, webhook, namespace)
    ]
    names = ", ".join(webhook["name"] for _, webhook in including)
    patch = json_patch(
        "mutatingwebhookconfiguration", installed.installation.configuration, operations
    )
    return [fault(f"{names} includes {scope}", advice, patch)]


def _includes(webhook: Json, namespace: str, labels: Mapping[str, str]) -> bool:
    """Return whether a webhook includes a namespace, or would if it were labelled to opt in.

    Any user who may label the namespace can opt in, so only an exclusion by name is safe.
    """
    own = {**labels, LABEL_NAMESPACE_NAME: namespace}
    selector = webhook.get("namespaceSelector")
    return selector_matches(selector, own) or selector_matches(
        selector, {**own, LABEL_POLICY: "any"}
    )


def exclusion_operations(index: int, webhook: Json, namespace: str) -> list[dict[str, Any]]:
    """Return the JSON patch operations that exclude a namespace from a webhook by name."""
    path = f"/webhooks/{index}"
    # The webhook could get another index before the command runs.
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": f"{path}/name", "value": webhook["name"]}
    ]
    path += "/namespaceSelector"
    expressions = (webhook.get("namespaceSelector") or {}).get("matchExpressions")
    for number, each in enumerate(expressions or ()):
        if each["key"] == LABEL_NAMESPACE_NAME and each["operator"] == "NotIn":
            path += f"/matchExpressions/{number}/values/-"
            return [*operations, {"op": "add", "path": path, "value": namespace}]
    expression = {"key": LABEL_NAMESPACE_NAME, "operator": "NotIn", "values": [namespace]}
    if expressions:
        addition: dict[str, Any] = {"path": f"{path}/matchExpressions/-", "value": expression}
    else:
        selector = {**(webhook.get("namespaceSelector") or {}), "matchExpressions": [expression]}
        addition = {"path": path, "value": selector}
    return [*operations, {"op": "add", **addition}]


CONFIGURATION = DoctorCheck(
    "webhook configuration", "whether the API server is configured to call podsettle", _check_exists
)
OWN_NAMESPACE = DoctorCheck(
    "own namespace",
    "whether podsettle's own namespace is excluded",
    _check_own_namespace,
    blocked_by=(CONFIGURATION.name,),
)
CONTROL_PLANE = DoctorCheck(
    "control plane",
    f"whether {_CONTROL_PLANE} is excluded if an outage of podsettle refuses pods",
    _check_control_plane,
    blocked_by=(CONFIGURATION.name,),
)
