"""What the API server is to ask about, as the policies have it."""

from __future__ import annotations

from typing import Any

from webhook.core.policy import SettlePolicy, parse_policy
from webhook.core.scope import by_selector

ENTRY: dict[str, Any] = {
    "name": "opt-in.podsettle.dev",
    "clientConfig": {"service": {"name": "podsettle", "namespace": "settle-system"}},
    "failurePolicy": "Ignore",
    "timeoutSeconds": 2,
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "podsettle.dev/policy", "operator": "Exists"},
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["settle-system", "kube-system"],
            },
        ]
    },
}


def selecting(selector: Any, name: str = "p") -> SettlePolicy:
    spec: dict[str, Any] = {"remedies": {"postInitSleep": {}}}
    if selector is not None:
        spec["namespaceSelector"] = selector
    return parse_policy(
        {
            "apiVersion": "podsettle.dev/v1alpha1",
            "kind": "SettlePolicy",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def excluded(webhook: Any) -> list[str]:
    expressions = webhook["namespaceSelector"]["matchExpressions"]
    (found,) = [
        e["values"]
        for e in expressions
        if (e["key"], e["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
    ]
    return list(found)


def conditions(webhook: Any) -> dict[str, str]:
    """Expressions by name, of which the API server takes each once."""
    names = [condition["name"] for condition in webhook["matchConditions"]]
    assert len(names) == len(set(names))
    return {each["name"]: each["expression"] for each in webhook["matchConditions"]}


def test_without_a_policy_that_selects_namespaces_only_those_that_opt_in_are_asked_about() -> None:
    assert by_selector(ENTRY, []) is None
    assert by_selector(ENTRY, [selecting(None)]) is None


def test_it_is_the_operator_s_webhook_but_for_the_scope() -> None:
    made = by_selector(ENTRY, [selecting({})])
    assert made is not None
    assert made["name"] == "cluster.podsettle.dev"
    for key in ("clientConfig", "failurePolicy", "timeoutSeconds"):
        assert made[key] == ENTRY[key]
    first, second, third = made["namespaceSelector"]["matchExpressions"]
    assert first == {"key": "podsettle.dev/policy", "operator": "DoesNotExist"}
    assert second == {"key": "podsettle.dev/enabled", "operator": "NotIn", "values": ["false"]}
    assert third["values"] == ["kube-system", "settle-system"]


def test_one_selector_is_evaluated_by_the_api_server_two_are_not() -> None:
    one = {"matchLabels": {"team": "ci"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}
    made = by_selector(ENTRY, [selecting(one), selecting(one, "q"), selecting(None, "r")])
    assert made is not None
    team = {"key": "team", "operator": "In", "values": ["ci"]}
    assert team in made["namespaceSelector"]["matchExpressions"]
    assert {"key": "x", "operator": "Exists"} in made["namespaceSelector"]["matchExpressions"]
    made = by_selector(ENTRY, [selecting(one), selecting({}, "q")])
    assert made is not None
    assert made["namespaceSelector"].keys() == {"matchExpressions"}
    assert len(made["namespaceSelector"]["matchExpressions"]) == 3


def test_a_policy_may_name_a_namespace_that_is_left_alone() -> None:
    named = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    made = by_selector(ENTRY, [selecting(named), selecting({}, "all")])
    assert made is not None
    assert excluded(made) == ["settle-system"]
    assert conditions(made)["not-protected"] == (
        '!(request.namespace.startsWith("kube-") || request.namespace.startsWith("openshift-"))'
        ' || request.namespace in ["kube-system"]'
    )


def test_but_not_where_an_outage_would_keep_its_pods_from_being_created() -> None:
    named = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    made = by_selector(ENTRY | {"failurePolicy": "Fail"}, [selecting(named), selecting({}, "all")])
    assert made is not None
    assert excluded(made) == ["kube-system", "settle-system"]


def test_nor_podsettle_s_own() -> None:
    own = {"matchLabels": {"kubernetes.io/metadata.name": "settle-system"}}
    made = by_selector(ENTRY, [selecting(own)])
    assert made is not None
    assert "settle-system" in excluded(made)


def test_what_a_platform_adds_to_every_selector_is_taken_over() -> None:
    added = {"key": "control-plane", "operator": "DoesNotExist"}
    selector = ENTRY["namespaceSelector"]
    expressions = [*selector["matchExpressions"], added]
    entry = {**ENTRY, "namespaceSelector": {"matchExpressions": expressions}}
    made = by_selector(entry, [selecting({})])
    assert made is not None
    assert made["namespaceSelector"]["matchExpressions"][-1] == added


OWN = ["not-mirror", "not-windows", "not-settled", "not-protected"]


def test_it_adds_the_conditions_that_the_first_one_does_without() -> None:
    made = by_selector(ENTRY, [selecting({})])
    assert list(conditions(made)) == OWN
    assert "matchConditions" not in ENTRY


def test_conditions_of_the_operator_hold_for_both() -> None:
    theirs = {"name": "not-ours", "expression": "request.userInfo.username != 'x'"}
    made = by_selector({**ENTRY, "matchConditions": [theirs]}, [selecting({})])
    assert list(conditions(made)) == [*OWN, "not-ours"]
    assert conditions(made)["not-ours"] == theirs["expression"]


def test_those_that_an_earlier_chart_wrote_are_not_there_twice() -> None:
    """Nor do they stand in for what is podsettle's own."""
    earlier = [{"name": name, "expression": "true"} for name in (*OWN[:3], "not-ours", OWN[3])]
    made = by_selector({**ENTRY, "matchConditions": earlier}, [selecting({})])
    without = by_selector(ENTRY, [selecting({})])
    assert conditions(made) == {**conditions(without), "not-ours": "true"}
