"""Tests for the cluster webhooks that the policies need."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import policy
from tests.support.webhook_configuration import ENTRY
from webhook.core.policy.cluster_webhooks import cluster_webhooks
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.webhook_selectors import webhook_selectors


def selecting(selector: Any, name: str = "p", pods: dict[str, Any] | None = None) -> SettlePolicy:
    return policy(name, podSelector=pods or {}, namespaceSelector=selector)


def made_for(*policies: SettlePolicy, entry: dict[str, Any] = ENTRY) -> dict[str, Any]:
    """Return the cluster webhooks for policies, by name."""
    return {each["name"]: each for each in cluster_webhooks(entry, webhook_selectors(policies))}


def only(*policies: SettlePolicy, entry: dict[str, Any] = ENTRY) -> Any:
    """Return the only cluster webhook for policies."""
    (webhook,) = made_for(*policies, entry=entry).values()
    return webhook


def excluded(webhook: Any) -> list[str]:
    expressions = webhook["namespaceSelector"]["matchExpressions"]
    (found,) = [
        e["values"]
        for e in expressions
        if (e["key"], e["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
    ]
    return list(found)


def conditions(webhook: Any) -> dict[str, str]:
    """Return the match conditions by name. The API server refuses a name that occurs twice."""
    names = [condition["name"] for condition in webhook["matchConditions"]]
    assert len(names) == len(set(names))
    return {each["name"]: each["expression"] for each in webhook["matchConditions"]}


def test_cluster_webhook_copies_the_operators_settings_except_selectors() -> None:
    made = only(selecting({}))
    assert made["name"] == "cluster.podsettle.dev"
    for key in ("clientConfig", "failurePolicy", "timeoutSeconds"):
        assert made[key] == ENTRY[key]
    first, second, third = made["namespaceSelector"]["matchExpressions"]
    assert first == {"key": "podsettle.dev/policy", "operator": "DoesNotExist"}
    assert second == {"key": "podsettle.dev/enabled", "operator": "NotIn", "values": ["false"]}
    assert third["values"] == ["kube-system", "settle-system"]
    assert "objectSelector" not in made


TEAM = {"key": "team", "operator": "In", "values": ["ci"]}


def test_cluster_webhook_has_the_selectors_of_the_policy() -> None:
    one = {"matchLabels": {"team": "ci"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}
    pods = {"matchLabels": {"app": "web"}}
    made = only(selecting(one, "p", pods), selecting(one, "q", pods), selecting(None, "r"))
    assert made["namespaceSelector"]["matchExpressions"][-2:] == [
        TEAM,
        {"key": "x", "operator": "Exists"},
    ]
    assert made["objectSelector"] == {
        "matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]
    }


@pytest.mark.parametrize(
    ("wanted", "count", "expected"),
    [(2, 12, 2), (2, 13, 1), (2, 20, 1), (10, 2, 10), (10, 3, 8), (30, 1, 25), (None, 5, 5)],
)
def test_timeouts_of_all_cluster_webhooks_fit_into_a_request(
    wanted: int | None, count: int, expected: int
) -> None:
    entry = {**ENTRY, "timeoutSeconds": wanted}
    if wanted is None:
        del entry["timeoutSeconds"]
    policies = [selecting({"matchLabels": {"team": f"t{n}"}}, f"p{n:02}") for n in range(count)]
    made = made_for(*policies, entry=entry)
    assert [each["timeoutSeconds"] for each in made.values()] == [expected] * count
    # Half of the API server's --request-timeout, because webhooks may be called twice.
    assert expected * count < 60 / 2


def test_every_cluster_webhook_keeps_the_operators_object_selector() -> None:
    theirs = {"matchLabels": {"a": "b"}, "matchExpressions": [TEAM]}
    entry = {**ENTRY, "objectSelector": theirs}
    made = made_for(
        selecting({}, "p", {"matchLabels": {"app": "x"}}),
        selecting({}, "q", {"matchLabels": {"app": "y"}}),
        entry=entry,
    )
    assert [each["objectSelector"] for each in made.values()] == [
        {
            **theirs,
            "matchExpressions": [TEAM, {"key": "app", "operator": "In", "values": [value]}],
        }
        for value in "xy"
    ]
    assert theirs["matchExpressions"] == [TEAM]


@pytest.mark.parametrize(
    "theirs",
    [
        {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a"]},
        {"key": "podsettle.dev/enabled", "operator": "In", "values": ["true"]},
    ],
    ids=lambda theirs: theirs["key"],
)
def test_cluster_webhook_keeps_what_a_platform_adds_to_the_namespace_selector(
    theirs: dict[str, Any],
) -> None:
    selector = ENTRY["namespaceSelector"]
    expressions = [*selector["matchExpressions"], theirs]
    made = only(
        selecting({}), entry={**ENTRY, "namespaceSelector": {"matchExpressions": expressions}}
    )
    before = only(selecting({}))["namespaceSelector"]["matchExpressions"]
    assert made["namespaceSelector"]["matchExpressions"] == [*before, theirs]


def test_excluded_namespace_is_included_if_a_policy_names_it() -> None:
    named = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    everywhere, made = made_for(selecting(named), selecting({}, "all")).values()
    assert made["name"] == "p.cluster.podsettle.dev"
    assert excluded(everywhere) == ["kube-system", "settle-system"]
    assert "request.namespace in" not in conditions(everywhere)["not-protected"]
    assert excluded(made) == ["settle-system"]
    assert conditions(made)["not-protected"] == (
        '!(request.namespace.startsWith("kube-") || request.namespace.startsWith("openshift-"))'
        ' || request.namespace in ["kube-system"]'
    )


def test_named_namespace_stays_excluded_with_failure_policy_fail() -> None:
    named = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    entry = ENTRY | {"failurePolicy": "Fail"}
    made = made_for(selecting(named), entry=entry)["cluster.podsettle.dev"]
    assert excluded(made) == ["kube-system", "settle-system"]


OWN = ["not-mirror", "not-windows", "not-settled", "not-protected"]


def test_match_conditions_of_an_earlier_chart_are_replaced() -> None:
    """podsettle's own conditions count, not the old ones with the same names."""
    earlier = [{"name": name, "expression": "true"} for name in (*OWN[:3], "not-ours", OWN[3])]
    made = only(selecting({}), entry={**ENTRY, "matchConditions": earlier})
    without = only(selecting({}))
    assert conditions(made) == {**conditions(without), "not-ours": "true"}
