"""Tests of the explanation why each policy does or does not act on a pod."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import Json, namespace, policy
from webhook.cluster.decode import read_namespace
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.policy_matches import PolicyMatch, Verdict, match_policies

LABELS = {"tekton.dev/taskRun": "build", "tier": "x"}


def match(
    *policies: SettlePolicy, space: str = "ci", labels: Json | None = None, limit: int = 100
) -> tuple[PolicyMatch, ...]:
    found = read_namespace(namespace(space, labels))
    return match_policies(PolicySet(policies), found, LABELS, "own", limit)


def why(space: str = "ci", labels: Json | None = None, **spec: Any) -> str:
    (found,) = match(policy("p", **spec), space=space, labels=labels)
    assert found == PolicyMatch("p", Verdict.NOT_MATCHED, why=found.why)
    return found.why


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "reason"),
    [
        ({"matchLabels": {"app": "a"}}, "the pod has no label app=a"),
        ({"matchLabels": {"tier": "y"}}, "the pod has the label tier=x, not y"),
        (expression("absent", "Exists"), "the pod has no label absent"),
        (expression("tier", "DoesNotExist"), "the pod has the label tier=x"),
        (expression("tier", "NotIn", "x"), "the pod has the label tier=x"),
        (expression("tier", "In", "y", "z"), "the pod has the label tier=x, not y or z"),
        (expression("absent", "In", "y", "z"), "the pod has no label absent=y or z"),
        (
            expression("tier", "In", *"abcdefg"),
            "the pod has the label tier=x, not a or b or c or d or e or 2 more",
        ),
    ],
)
def test_first_requirement_on_the_pod_that_is_not_met_is_named(
    selector: dict[str, Any], reason: str
) -> None:
    assert why(podSelector=selector) == reason


@pytest.mark.parametrize(
    ("space", "labels", "selector", "reason"),
    [
        ("ci", {}, {"matchLabels": {"team": "a"}}, "the namespace has no label team=a"),
        ("ci", {}, None, "the namespace has no label podsettle.dev/policy=p"),
        ("ci", {"podsettle.dev/policy": "q"}, None,
         "the namespace has no label podsettle.dev/policy=p"),
        ("ci", {"podsettle.dev/enabled": "false"}, {},
         'the namespace is labelled podsettle.dev/enabled: "false"'),
        ("own", {}, {}, "the namespace is podsettle's own"),
        ("kube-ci", {}, {},
         "the namespace belongs to the cluster, and namespaceSelector does not name it"),
        ("kube-ci", {"podsettle.dev/policy": "p"}, None,
         "the namespace belongs to the cluster, and namespaceSelector does not name it"),
    ],
)  # fmt: skip
def test_reason_why_a_policy_does_not_cover_the_namespace_is_named(
    space: str, labels: dict[str, str], selector: Any, reason: str
) -> None:
    assert why(space, labels, namespaceSelector=selector) == reason


def test_remedy_of_a_later_policy_is_shadowed_by_the_first_that_sets_it() -> None:
    both: Json = {"postInitSleep": {}, "kubeletGate": {}}
    assert match(
        policy("a", remedies={"postInitSleep": {}}, priority=1),
        policy("b", remedies=both),
        policy("c", remedies={"kubeletGate": {}}),
    ) == (
        PolicyMatch("a", Verdict.ACTS, ("postInitSleep",)),
        PolicyMatch("b", Verdict.ACTS, ("kubeletGate",), (("postInitSleep", "a"),)),
        PolicyMatch("c", Verdict.SHADOWED, (), (("kubeletGate", "b"),)),
    )


def test_policy_that_audits_shadows_no_policy_that_mutates() -> None:
    assert match(
        policy("a", action="Audit", priority=1), policy("b"), policy("c", action="Audit")
    ) == (
        PolicyMatch("a", Verdict.AUDITS, ("postInitSleep",)),
        PolicyMatch("b", Verdict.ACTS, ("postInitSleep",)),
        PolicyMatch("c", Verdict.SHADOWED, (), (("postInitSleep", "a"),)),
    )


def test_covering_policies_come_first_and_the_number_of_policies_is_bounded() -> None:
    elsewhere = {"matchLabels": {"team": "other"}}
    policies = [policy(f"p{n:03}", priority=9, namespaceSelector=elsewhere) for n in range(300)]
    found = match(*policies, policy("last"), limit=3)
    assert [each.policy for each in found] == ["last", "p000", "p001"]


def test_long_value_of_a_label_is_cut() -> None:
    space = read_namespace(namespace("ci"))
    policies = PolicySet([policy("p", podSelector={"matchLabels": {"a": "b"}})])
    (found,) = match_policies(policies, space, {"a": "x" * 1_000_000}, None)
    assert found.why == f"the pod has the label a={'x' * 63}, not b"
