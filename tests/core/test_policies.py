"""Who is covered, and by what."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import SETTINGS, policy
from webhook.core.names import LABEL_NAMESPACE_NAME
from webhook.core.policies import Coverage, PolicySet
from webhook.core.policy import SettlePolicy
from webhook.core.view import Namespace

OPT_IN: Any = None
EVERYWHERE: Any = {}


def named(name: str) -> dict[str, Any]:
    return {"matchLabels": {LABEL_NAMESPACE_NAME: name}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def cover(
    *policies: SettlePolicy, name: str = "ci", own: str | None = "podsettle-system", **labels: str
) -> Coverage:
    full = {
        LABEL_NAMESPACE_NAME: name,
        **{key.replace("__", "/").replace("_", "."): value for key, value in labels.items()},
    }
    return PolicySet(policies).covering(Namespace(name, full), own)


def names(coverage: Coverage) -> list[str]:
    return [found.name for found in coverage.policies]


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        (EVERYWHERE, True),
        (OPT_IN, False),
        ({"matchLabels": {"team": "a"}}, True),
        ({"matchLabels": {"team": "b"}}, False),
        (expression("team", "In", "a", "b"), True),
        (expression("team", "In", "b"), False),
        (expression("team", "NotIn", "b"), True),
        (expression("team", "NotIn", "a"), False),
        (expression("team", "Exists"), True),
        (expression("absent", "Exists"), False),
        (expression("absent", "DoesNotExist"), True),
        (expression("team", "DoesNotExist"), False),
    ],
)
def test_a_namespace_selector_covers_what_it_selects(selector: Any, covers: bool) -> None:
    found = cover(policy(namespaceSelector=selector), team="a")
    assert names(found) == (["p"] if covers else [])
    assert found.missing_policy == ""


def test_a_namespace_opts_in_by_naming_a_policy_whatever_its_selector_says() -> None:
    policies = [
        policy("asked", namespaceSelector=OPT_IN),
        policy("elsewhere", namespaceSelector={"matchLabels": {"team": "b"}}),
        policy("quiet", namespaceSelector=OPT_IN),
    ]
    assert names(cover(*policies, podsettle_dev__policy="asked")) == ["asked"]
    assert names(cover(*policies, podsettle_dev__policy="elsewhere")) == ["elsewhere"]


def test_a_policy_that_is_asked_for_and_missing_is_told() -> None:
    found = cover(policy("wide"), podsettle_dev__policy="gone")
    assert names(found) == ["wide"]
    assert found.missing_policy == "gone"


@pytest.mark.parametrize("name", ["ci", "kube-system", "podsettle-system"])
def test_enabled_false_is_over_everything(name: str) -> None:
    found = cover(
        policy("everywhere"),
        policy("by-name", namespaceSelector=named(name)),
        name=name,
        podsettle_dev__policy="everywhere",
        podsettle_dev__enabled="false",
    )
    assert found == Coverage(disabled=True)


@pytest.mark.parametrize("value", ["true", "", "no"])
def test_enabled_means_only_false_as_off(value: str) -> None:
    assert names(cover(policy(), podsettle_dev__enabled=value)) == ["p"]


@pytest.mark.parametrize("name", ["kube-system", "kube-public", "openshift-monitoring"])
@pytest.mark.parametrize(
    "selector",
    [
        EVERYWHERE,
        OPT_IN,
        {"matchLabels": {"team": "a"}},
        named("other"),
        expression(LABEL_NAMESPACE_NAME, "Exists"),
        expression(LABEL_NAMESPACE_NAME, "NotIn", "other"),
    ],
)
def test_system_namespaces_are_protected_and_opting_in_is_not_enough(
    name: str, selector: Any
) -> None:
    found = cover(
        policy(namespaceSelector=selector), name=name, team="a", podsettle_dev__policy="p"
    )
    assert found == Coverage(protected=True)


@pytest.mark.parametrize("name", ["kube-system", "openshift-monitoring"])
@pytest.mark.parametrize("by", ["matchLabels", "In"])
def test_a_selector_that_names_a_system_namespace_covers_it(name: str, by: str) -> None:
    selector = (
        named(name) if by == "matchLabels" else expression(LABEL_NAMESPACE_NAME, "In", "x", name)
    )
    found = cover(policy("wide"), policy("named", namespaceSelector=selector), name=name)
    assert names(found) == ["named"]
    assert not found.protected


def test_naming_a_system_namespace_does_not_help_where_the_selector_fails_otherwise() -> None:
    selector = named("kube-system") | expression("team", "Exists")
    assert cover(policy(namespaceSelector=selector), name="kube-system").protected


@pytest.mark.parametrize("name", ["kubernetes", "kube", "openshift", "my-kube-system"])
def test_only_the_prefixes_are_protected(name: str) -> None:
    assert names(cover(policy(), name=name)) == ["p"]


def test_the_own_namespace_is_protected_even_from_a_policy_that_names_it() -> None:
    own = SETTINGS.own_namespace
    assert own
    by_name = policy(namespaceSelector=named(own))
    assert cover(policy("wide"), by_name, name=own, own=own) == Coverage(protected=True)
    assert names(cover(by_name, name=own, own=None)) == ["p"]


def test_policies_come_by_priority_and_then_by_name() -> None:
    found = cover(
        policy("b", priority=1), policy("c", priority=-5), policy("a", priority=1), policy("z",
        priority=100), policy("d"),
    )  # fmt: skip
    assert names(found) == ["z", "a", "b", "d", "c"]


def test_new_labels_of_a_namespace_are_seen() -> None:
    policies = PolicySet([policy(namespaceSelector={"matchLabels": {"team": "a"}})])
    for labels, covered in [({"team": "a"}, 1), ({"team": "b"}, 0), ({"team": "a"}, 1)]:
        for _ in range(2):
            found = policies.covering(Namespace("ci", labels), None)
            assert len(found.policies) == covered


def test_two_namespaces_with_equal_labels_are_told_apart() -> None:
    policies = PolicySet([policy()])
    labels = {"team": "a"}
    assert policies.covering(Namespace("kube-system", labels), None).protected
    assert not policies.covering(Namespace("ci", labels), None).protected
    assert len(policies) == 1
