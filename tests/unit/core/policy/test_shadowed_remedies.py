"""Tests of remedies that never act, because an earlier policy sets them for the same pods."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.support.examples import examples
from tests.support.factories import Json, policy
from tests.support.strategies import PODS, VIEWS
from webhook.core.admission.decider import OperatorSettings
from webhook.core.policy.policy_matches import Verdict
from webhook.core.policy.shadowed_remedies import ShadowedRemedy, shadowed_remedies
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.pod_decider import PodDecider

SLEEP: Json = {"postInitSleep": {}}
TEAM = {"matchLabels": {"team": "a"}}
LISTED_TEAM = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}
SYSTEM = {
    "matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["kube-system"]}
    ]
}


def shadowed(first: Json, second: Json) -> bool:
    found = [*shadowed_remedies([policy("b", **second), policy("a", **first)])]
    assert found in ([], [ShadowedRemedy("b", "postInitSleep", "a")])
    return bool(found)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({}, {"namespaceSelector": TEAM}),
        ({}, {"podSelector": TEAM}),
        ({}, {"namespaceSelector": None}),
        ({"namespaceSelector": TEAM}, {"namespaceSelector": LISTED_TEAM}),
        (
            {"namespaceSelector": None},
            {"namespaceSelector": {"matchLabels": {"podsettle.dev/policy": "a"}}},
        ),
        ({"remedies": {**SLEEP, "kubeletGate": {}}}, {}),
        ({"action": "Audit"}, {"action": "Audit"}),
    ],
)
def test_remedy_for_pods_that_an_earlier_policy_selects_is_shadowed(
    first: Json, second: Json
) -> None:
    assert shadowed(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"namespaceSelector": TEAM}, {}),
        ({"podSelector": TEAM}, {}),
        ({"namespaceSelector": None}, {"namespaceSelector": None}),
        ({"namespaceSelector": None}, {}),
        ({}, {"namespaceSelector": SYSTEM}),
        ({"action": "Audit"}, {}),
        ({}, {"action": "Audit"}),
        ({"remedies": {"kubeletGate": {}}}, {}),
        ({"priority": -1}, {"namespaceSelector": TEAM}),
    ],
)
def test_remedy_that_may_act_on_a_pod_is_not_shadowed(first: Json, second: Json) -> None:
    assert not shadowed(first, second)


@examples(200)
@given(document=PODS, seen=VIEWS)
def test_shadowed_remedy_of_a_selecting_policy_never_acts(document: Any, seen: Snapshot) -> None:
    chosen = {each.metadata.name: each.spec for each in seen.policies.documents}
    never = {
        (each.policy, each.remedy)
        for each in shadowed_remedies(seen.policies.documents)
        if chosen[each.policy].namespace_selector is not None
    }
    for name in ("qa", "kube-ci", "mcs"):
        space = seen.namespace(name)
        assert space is not None
        # A namespace that names a policy by label gets it whatever its selector says.
        if "podsettle.dev/policy" in space.labels:
            continue
        decided = PodDecider(seen, OperatorSettings()).decide(document, name)
        # Without a decision on the policies, each remedy has the reason of the whole pod.
        if not decided.decision.policies:
            continue
        for match in decided.policy_matches:
            if match.verdict is not Verdict.NOT_MATCHED:
                shadowed = {(match.policy, each.remedy) for each in match.shadowed}
                assert {pair for pair in never if pair[0] == match.policy} <= shadowed
