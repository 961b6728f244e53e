"""Tests of the explanation why each policy does or does not act on a pod."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from tests.support.examples import examples
from tests.support.factories import (
    SETTINGS,
    Json,
    container,
    namespace,
    node,
    pod,
    policy,
    view,
)
from tests.support.strategies import PODS, VIEWS
from webhook.cluster.decode import read_namespace
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.policy_matches import (
    PolicyMatch,
    ShadowedRemedy,
    SkippedRemedy,
    Verdict,
    match_policies,
)
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.pod_decider import PodDecider, PodDecision
from webhook.core.reasons import Reason

LABELS = {"tekton.dev/taskRun": "build", "tier": "x"}
QUICK = container("prepare", "/x")
MOUNT = {"name": "podsettle-linger", "mountPath": "/podsettle"}
FIXED = [node("fixed", "cri-o://1.36.0")]


def match(
    *policies: SettlePolicy, space: str = "ci", labels: Json | None = None
) -> tuple[PolicyMatch, ...]:
    found = read_namespace(namespace(space, labels))
    return match_policies(PolicySet(policies), found, LABELS, "own", ())


def decide(document: Json, seen: Snapshot) -> PodDecision:
    return PodDecider(seen, SETTINGS).decide(document, "ci")


def why(space: str = "ci", labels: Json | None = None, **spec: Any) -> str:
    (found,) = match(policy("p", **spec), space=space, labels=labels)
    assert found == PolicyMatch("p", Verdict.NOT_MATCHED, why=found.why)
    return found.why


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_first_requirement_on_the_pod_that_is_not_met_is_named() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
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
    ]
    assert [(selector, why(podSelector=selector)) for selector, _ in cases] == cases


def test_reason_why_a_policy_does_not_cover_the_namespace_is_named() -> None:
    cases: list[tuple[str, dict[str, str], Any, str]] = [
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
    ]  # fmt: skip
    assert [
        (space, labels, selector, why(space, labels, namespaceSelector=selector))
        for space, labels, selector, _ in cases
    ] == cases


def test_remedy_of_a_later_policy_is_shadowed_by_the_first_that_sets_it() -> None:
    both: Json = {"postInitSleep": {}, "kubeletGate": {}}
    seen = view(
        policy("a", remedies={"postInitSleep": {}}, priority=1),
        policy("b", remedies=both),
        policy("c", remedies={"kubeletGate": {}}),
    )
    decided = decide(pod(QUICK), seen)
    assert decided.policy_matches == (
        PolicyMatch("a", Verdict.ACTS, ("postInitSleep",)),
        PolicyMatch("b", Verdict.ACTS, ("kubeletGate",), (ShadowedRemedy("postInitSleep", "a"),)),
        PolicyMatch("c", Verdict.SHADOWED, (), (ShadowedRemedy("kubeletGate", "b"),)),
    )
    assert [(o.policy, o.remedy, o.reason, o.message) for o in decided.outcomes[2:]] == [
        ("b", "postInitSleep", Reason.SHADOWED, "policy a sets the remedy first"),
        ("c", "kubeletGate", Reason.SHADOWED, "policy b sets the remedy first"),
    ]


def test_policy_that_audits_shadows_no_policy_that_mutates() -> None:
    seen = view(policy("a", action="Audit", priority=1), policy("b"), policy("c", action="Audit"))
    assert decide(pod(QUICK), seen).policy_matches == (
        PolicyMatch("a", Verdict.AUDITS, ("postInitSleep",)),
        PolicyMatch("b", Verdict.ACTS, ("postInitSleep",)),
        PolicyMatch("c", Verdict.SHADOWED, (), (ShadowedRemedy("postInitSleep", "a"),)),
    )


def test_policy_that_audits_after_one_that_mutates_is_shadowed() -> None:
    seen = view(policy("a"), policy("b", action="Audit"))
    decided = decide(pod(QUICK, container("plugin")), seen)
    assert decided.policy_matches == (
        PolicyMatch("a", Verdict.ACTS, ("postInitSleep",)),
        PolicyMatch("b", Verdict.SHADOWED, (), (ShadowedRemedy("postInitSleep", "a"),)),
    )
    assert [(o.policy, o.container, o.reason, o.message) for o in decided.outcomes[2:]] == [
        ("b", "prepare", Reason.SHADOWED, "policy a sets the remedy first"),
        ("b", "plugin", Reason.NO_COMMAND, ""),
    ]
    assert "would be" not in decided.summary
    # Its action counts in reviews: there it is evaluated apart from those that mutate.
    assert decided.decision.outcomes[2].reason is Reason.WOULD_APPLY


@pytest.mark.parametrize("action", ["Mutate", "Audit"])
def test_first_policy_that_selects_no_container_is_not_said_to_set_the_remedy(action: str) -> None:
    named = {"postInitSleep": {"initContainers": ["other"]}}
    seen = view(policy("a", remedies=named), policy("b", action=action))
    messages = {o.policy: o.message for o in decide(pod(QUICK), seen).outcomes}
    assert messages["b"] == (
        "policy a has the remedy first, but selects none of the pod's containers"
    )


def test_covering_policies_come_first_and_the_number_of_policies_is_bounded() -> None:
    elsewhere = {"matchLabels": {"team": "other"}}
    policies = [policy(f"p{n:03}", priority=9, namespaceSelector=elsewhere) for n in range(300)]
    found = match(*policies, policy("last"))
    assert [each.policy for each in found] == ["last", *(f"p{n:03}" for n in range(99))]


@pytest.mark.parametrize(
    ("document", "remedy", "settings", "reasons"),
    [
        (pod(), "postInitSleep", {}, [Reason.NO_CONTAINER_SELECTED]),
        (pod(QUICK), "postInitSleep", {"containers": ["x*"], "initContainers": []},
         [Reason.NO_CONTAINER_SELECTED]),
        (pod(QUICK), "retryInitExit255", {"initContainers": ["other"]},
         [Reason.NO_CONTAINER_SELECTED]),
        (pod(QUICK), "postInitSleep", {"containers": ["*"]},
         [Reason.NOT_NEEDED, Reason.LONG_RUNNING]),
        (pod(container("prepare", "/podsettle/linger", "--", "/x", volumeMounts=[MOUNT])),
         "postInitSleep", {}, [Reason.ALREADY_SETTLED]),
        (pod(), "skipSELinuxRelabel", {}, [Reason.NO_PERSISTENT_VOLUME]),
        (pod(annotations={"podsettle.dev/skip": "postInitSleep"}), "postInitSleep", {},
         [Reason.POD_OPTED_OUT]),
        (pod(annotations={"podsettle.dev/skip": "true"}), "postInitSleep", {},
         [Reason.POD_OPTED_OUT]),
        (pod(os={"name": "windows"}), "postInitSleep", {}, [Reason.WINDOWS_POD]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("action", ["Mutate", "Audit"])
def test_policy_that_changes_nothing_has_a_reason_for_its_remedy(
    document: Json, remedy: str, settings: Json, reasons: list[Reason], action: str
) -> None:
    seen = view(policy(remedies={remedy: settings}, action=action), nodes=FIXED)
    decided = decide(document, seen)
    skipped = (SkippedRemedy(remedy, tuple(reasons)),)
    assert decided.policy_matches == (PolicyMatch("p", Verdict.CHANGES_NOTHING, skipped=skipped),)
    assert [outcome.reason for outcome in decided.outcomes] == reasons
    assert decided.policies == ("p",)


def test_message_names_the_containers_that_a_remedy_does_not_select() -> None:
    names = ["x" * 100_000, *(f"c{number}" for number in range(9))]
    document = pod(
        container("podsettle-kubelet-gate"), containers=[container(name) for name in names]
    )
    (outcome,) = decide(document, view(policy())).outcomes
    assert outcome.message == (
        "selects none of the pod's containers (init containers: none; containers: c0, c1, c2, c3, "
        "c4, 5 more)"
    )


@examples(200)
@given(document=PODS, seen=VIEWS)
def test_each_remedy_of_each_covering_policy_has_an_outcome(document: Any, seen: Snapshot) -> None:
    decided = PodDecider(seen, SETTINGS).decide(document, "qa")
    made = decided.decision.outcomes
    for shown, before in zip(decided.outcomes[: len(made)], made, strict=True):
        if shown != before:
            assert before.reason is Reason.WOULD_APPLY
            message = shown.message
            assert shown == replace(before, reason=Reason.SHADOWED, message=message, effect="")
    whole_pod = {o.reason for o in made if not o.policy and not o.remedy}
    chosen = {each.metadata.name: each.spec.settings() for each in seen.policies.documents}
    covering = [m for m in decided.policy_matches if m.verdict is not Verdict.NOT_MATCHED]
    assert tuple(match.policy for match in covering) == decided.policies
    for match in covering:
        shadowed = {each.remedy for each in match.shadowed}
        skipped = {each.remedy: each.reasons for each in match.skipped}
        assert sorted([*match.acting, *shadowed, *skipped]) == sorted(chosen[match.policy])
        for remedy in chosen[match.policy]:
            outcomes = [
                o for o in decided.outcomes if (o.policy, o.remedy) == (match.policy, remedy)
            ]
            assert outcomes or whole_pod
            acts = any(o.changed or o.reason is Reason.WOULD_APPLY for o in outcomes)
            assert acts == (remedy in match.acting)
            assert remedy not in skipped or skipped[remedy]
        assert bool(match.acting) == (match.verdict in (Verdict.ACTS, Verdict.AUDITS))
