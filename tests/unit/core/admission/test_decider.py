"""Tests of the decision: which pods are unchanged, and which policy's remedy applies."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.factories import (
    IMAGE,
    SETTINGS,
    container,
    decide_pod,
    mutate_pod,
    namespace,
    patched,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)
from tests.support.reviews import make_request
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.review import GroupVersionResource
from webhook.core.policy.snapshot import Snapshot

APPLIED = "podsettle.dev/applied"
SKIP = "podsettle.dev/skip"
QUICK = container("prepare", "/entrypoint", "init")
FAST = [runtime_class("fast"), runtime_class("slow")]


def relabel(**fields: Any) -> dict[str, Any]:
    return {"skipSELinuxRelabel": {"pods": "All", **fields}}


def test_a_pod_without_a_covering_policy_is_unchanged() -> None:
    elsewhere = policy("a", namespaceSelector={"matchLabels": {"team": "b"}})
    others = policy("b", podSelector={"matchLabels": {"app": "x"}})
    for seen in (view(), view(elsewhere), view(others), view(elsewhere, others)):
        assert reasons(decide_pod(pod(QUICK), seen)) == ["NoPolicy"]


def test_a_pod_selector_limits_the_policy_to_matching_pods() -> None:
    tekton = {"matchExpressions": [{"key": "tekton.dev/taskRun", "operator": "Exists"}]}
    seen = view(policy(podSelector=tekton))
    assert reasons(decide_pod(pod(QUICK, labels={"tekton.dev/taskRun": "x"}), seen)) == [
        "prepare: Applied"
    ]
    assert reasons(decide_pod(pod(QUICK, labels={"app": "x"}), seen)) == ["NoPolicy"]
    assert reasons(decide_pod(pod(QUICK), seen)) == ["NoPolicy"]


def test_a_pod_selector_may_require_the_absence_of_a_label() -> None:
    absent = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    seen = view(policy(podSelector=absent))
    assert reasons(decide_pod(pod(QUICK), seen)) == ["prepare: Applied"]
    assert reasons(decide_pod(pod(QUICK, labels={"app": "x"}), seen)) == ["NoPolicy"]


def test_the_policy_label_of_a_namespace_selects_a_policy() -> None:
    ci = namespace("ci", {"podsettle.dev/policy": "p"})
    asked = view(policy(namespaceSelector=None), namespaces=[ci])
    decision = decide_pod(pod(QUICK), asked)
    assert reasons(decision) == ["prepare: Applied"]
    assert decision.policies == ("p",)


@pytest.mark.parametrize(
    ("policies", "others"),
    [([], []), ([policy(podSelector={"matchLabels": {"a": "b"}})], []), ([policy()], ["Applied"])],
)
def test_a_policy_label_with_a_missing_policy_gives_a_warning(
    policies: list[Any], others: list[str]
) -> None:
    ci = namespace("ci", {"podsettle.dev/policy": "gone"})
    decision = decide_pod(pod(QUICK), view(*policies, namespaces=[ci]))
    assert reasons(decision) == ["PolicyNotFound", *(f"prepare: {reason}" for reason in others)]
    assert decision.warnings == [
        "podsettle: PolicyNotFound: namespace 'ci' asks for policy 'gone', which does not exist"
    ]


def test_a_disabled_namespace_is_unchanged() -> None:
    off = namespace("ci", {"podsettle.dev/enabled": "false", "podsettle.dev/policy": "p"})
    decision = decide_pod(pod(QUICK), view(policy(), namespaces=[off]))
    assert reasons(decision) == ["NamespaceDisabled"]
    assert decision.operations == ()


@pytest.mark.parametrize("name", ["kube-system", "openshift-etcd", "podsettle-system"])
def test_a_protected_namespace_is_unchanged(name: str) -> None:
    asking = namespace(name, {"podsettle.dev/policy": "gone"})
    seen = view(policy(), namespaces=[asking])
    assert reasons(decide_pod(pod(QUICK), seen, namespace=name)) == ["ProtectedNamespace"]


def test_an_unknown_namespace_gives_a_warning() -> None:
    seen = Snapshot(policies=view(policy()).policies, invents_namespaces=False)
    decision = decide_pod(pod(QUICK), seen)
    assert reasons(decision) == ["NamespaceUnknown"]
    assert decision.warnings == ["podsettle: NamespaceUnknown: namespace 'ci' is not known"]


@pytest.mark.parametrize(
    ("annotations", "spec", "reason"),
    [
        ({"kubernetes.io/config.mirror": "hash"}, {}, "MirrorPod"),
        ({"kubernetes.io/config.mirror": ""}, {}, "MirrorPod"),
        ({SKIP: "true"}, {}, "PodOptedOut"),
        ({SKIP: " true "}, {}, "PodOptedOut"),
        ({}, {"os": {"name": "windows"}}, "WindowsPod"),
        ({}, {"nodeSelector": {"kubernetes.io/os": "windows"}}, "WindowsPod"),
        (
            {},
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {
                                            "key": "kubernetes.io/os",
                                            "operator": "In",
                                            "values": ["windows"],
                                        }
                                    ]
                                }
                            ]
                        }
                    }
                }
            },
            "WindowsPod",
        ),
    ],
)
def test_an_excluded_pod_is_unchanged(
    annotations: dict[str, str], spec: dict[str, Any], reason: str
) -> None:
    decision = decide_pod(pod(QUICK, annotations=annotations, **spec), view(policy()))
    assert reasons(decision) == [reason]
    assert decision.operations == ()
    assert decision.warnings == []


@pytest.mark.parametrize("spec", [{"os": {"name": "linux"}}, {"os": None}, {"nodeSelector": None}])
def test_a_linux_pod_is_not_taken_for_a_windows_pod(spec: dict[str, Any]) -> None:
    assert reasons(decide_pod(pod(QUICK, **spec), view(policy()))) == ["prepare: Applied"]


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        ("runtimeClass", ["PodOptedOut", "prepare: Applied"]),
        ("postInitSleep", ["Applied", "PodOptedOut"]),
        ("runtimeClass,postInitSleep", ["PodOptedOut", "PodOptedOut"]),
        (" postInitSleep , runtimeClass ", ["PodOptedOut", "PodOptedOut"]),
        ("false", ["Applied", "prepare: Applied"]),
        ("", ["Applied", "prepare: Applied"]),
        ("nothing-of-ours", ["UnknownRemedy", "Applied", "prepare: Applied"]),
    ],
)
def test_the_skip_annotation_excludes_single_remedies(skip: str, expected: list[str]) -> None:
    both = policy(remedies={"postInitSleep": {}, "runtimeClass": {"name": "fast"}})
    decision = decide_pod(pod(QUICK, annotations={SKIP: skip}), view(both, classes=FAST))
    assert reasons(decision) == expected


@pytest.mark.parametrize(
    "request_fields",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE"},
        {"operation": "CONNECT"},
        {"sub_resource": "ephemeralcontainers"},
        {"sub_resource": "status"},
    ],
)
def test_a_request_other_than_pod_creation_is_unchanged(request_fields: dict[str, str]) -> None:
    seen = view(policy())
    request = replace(make_request(pod(QUICK), "ci"), **request_fields)
    assert reasons(Decider(SETTINGS).decide(request, seen)) == ["NotPodCreate"]


@pytest.mark.parametrize(
    ("group", "resource"), [("", "services"), ("metrics.k8s.io", "pods"), ("", "pods/log")]
)
def test_a_resource_other_than_core_pods_is_unchanged(group: str, resource: str) -> None:
    seen = view(policy())
    request = replace(
        make_request(pod(QUICK), "ci"), resource=GroupVersionResource(group, "v1", resource)
    )
    assert reasons(Decider(SETTINGS).decide(request, seen)) == ["NotPodCreate"]


def test_policies_apply_by_priority_and_then_by_name() -> None:
    def chosen(**priorities: int) -> str:
        policies = [
            policy(name, priority=priority, remedies={"runtimeClass": {"name": name}})
            for name, priority in priorities.items()
        ]
        return str(mutate_pod(pod(), view(*policies, classes=FAST))["spec"]["runtimeClassName"])

    assert chosen(fast=1, slow=0) == "fast"
    assert chosen(fast=0, slow=1) == "slow"
    assert chosen(slow=0, fast=0) == "fast"


def test_each_remedy_comes_from_the_first_policy_that_sets_it() -> None:
    policies = [
        policy("a", priority=3, remedies={"runtimeClass": {"name": "fast"}}),
        policy("b", priority=2, remedies={"runtimeClass": {"name": "slow"}, **relabel()}),
        policy("c", priority=1, remedies={"postInitSleep": {}, **relabel(runtimeClassName="slow")}),
    ]
    seen = view(*policies, classes=FAST)
    before = pod(QUICK)
    decision = decide_pod(before, seen)
    assert [(o.policy, o.remedy) for o in decision.outcomes] == [
        ("a", "runtimeClass"),
        ("b", "skipSELinuxRelabel"),
        ("c", "postInitSleep"),
    ]
    assert decision.policies == ("a", "b", "c")
    after = patched(before, decision)
    assert after["spec"]["runtimeClassName"] == "fast"
    assert after["metadata"]["annotations"][APPLIED] == (
        "a/runtimeClass,b/skipSELinuxRelabel,c/postInitSleep"
    )


def test_a_policy_that_does_not_select_the_pod_hides_no_other_policy() -> None:
    policies = [
        policy("a", priority=9, podSelector={"matchLabels": {"app": "x"}}),
        policy("b"),
    ]
    decision = decide_pod(pod(QUICK), view(*policies))
    assert [(o.policy, str(o.reason)) for o in decision.outcomes] == [("b", "Applied")]


def test_an_audit_reports_remedies_without_changing_the_pod() -> None:
    remedies = {"postInitSleep": {}, "runtimeClass": {"name": "gone"}, **relabel()}
    decision = decide_pod(pod(QUICK), view(policy(action="Audit", remedies=remedies)))
    assert reasons(decision) == ["RuntimeClassMissing", "WouldApply", "prepare: WouldApply"]
    assert decision.outcomes[1].message.startswith("would have the reason UnstableSELinuxLevel: ")
    assert decision.operations == ()
    assert "applied" not in decision.audit_annotations


def test_an_audit_hides_no_policy_that_mutates() -> None:
    audit = policy(
        "audit",
        priority=100,
        action="Audit",
        remedies={"postInitSleep": {}, "runtimeClass": {"name": "slow"}},
    )
    mutate = policy("mutate", remedies={"postInitSleep": {}, "runtimeClass": {"name": "fast"}})
    before = pod(QUICK)
    decision = decide_pod(before, view(audit, mutate, classes=FAST))
    assert [(o.policy, o.remedy, str(o.reason)) for o in decision.outcomes] == [
        ("mutate", "runtimeClass", "Applied"),
        ("mutate", "postInitSleep", "Applied"),
        ("audit", "runtimeClass", "WouldApply"),
        ("audit", "postInitSleep", "WouldApply"),
    ]
    after = patched(before, decision)
    assert after == mutate_pod(before, view(mutate, classes=FAST))
    assert after["metadata"]["annotations"][APPLIED] == "mutate/runtimeClass,mutate/postInitSleep"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "p/postInitSleep"),
        ("", "p/postInitSleep"),
        ("p/postInitSleep", "p/postInitSleep"),
        ("old/runtimeClass", "old/runtimeClass,p/postInitSleep"),
    ],
)
def test_applied_remedies_are_added_to_the_applied_annotation(
    before: str | None, after: str
) -> None:
    annotations = {} if before is None else {APPLIED: before}
    found = mutate_pod(pod(QUICK, annotations=annotations), view(policy()))
    assert found["metadata"]["annotations"][APPLIED] == after


def test_a_settled_pod_carries_its_fingerprint() -> None:
    labels = {"a": "b", "c": "d"}
    document = pod(QUICK, container("late"), labels=labels)
    found = mutate_pod(document, view(policy()))
    spec = found["spec"]
    assert found["metadata"]["annotations"]["podsettle.dev/settled"] == "/".join(
        str(len(part))
        for part in (spec["containers"], spec["initContainers"], spec["volumes"], labels)
    )
    # Another webhook adds a container. The second call updates the fingerprint.
    spec["initContainers"].append(container("later", "/later"))
    again = mutate_pod(found, view(policy()))
    assert again["metadata"]["annotations"]["podsettle.dev/settled"] == (
        f"{len(spec['containers'])}/{len(spec['initContainers'])}/{len(spec['volumes'])}/2"
    )


def test_a_patch_applies_to_a_pod_without_metadata() -> None:
    """The API server always sends metadata. A pod in a preview may have none."""
    before = pod(QUICK)
    del before["metadata"]
    patched(before, decide_pod(before, view(policy())))


def test_the_helper_image_comes_from_the_operator_settings() -> None:
    found = mutate_pod(pod(QUICK), view(policy()))
    assert [c["image"] for c in found["spec"]["initContainers"]] == [IMAGE, QUICK["image"]]
    unset = decide_pod(pod(QUICK), view(policy()), settings=OperatorSettings())
    assert reasons(unset) == ["prepare: HelperImageMissing"]


def test_the_skip_annotation_excludes_audits() -> None:
    remedies: dict[str, object] = {"postInitSleep": {}}
    audit = policy(remedies=remedies, action="Audit")
    before = pod(QUICK, annotations={"podsettle.dev/skip": "postInitSleep"})
    assert reasons(decide_pod(before, view(audit))) == ["PodOptedOut"]


@pytest.mark.parametrize(("count", "applied"), [(499, 499), (500, 0)])
def test_a_pod_with_more_than_500_containers_is_unchanged(count: int, applied: int) -> None:
    large = pod(*(container(f"c{n}", "/c") for n in range(count)))
    outcomes = decide_pod(large, view(policy())).outcomes
    assert sum(outcome.changed for outcome in outcomes) == applied
    if not applied:
        assert [outcome.reason for outcome in outcomes] == ["PodTooLarge"]


def test_unknown_remedies_in_the_skip_annotation_give_one_short_warning() -> None:
    skip = ",".join(f"x{n}" for n in range(20_000))
    skipping = pod(QUICK, annotations={"podsettle.dev/skip": skip})
    first, *rest = decide_pod(skipping, view(policy())).outcomes
    assert first.reason == "UnknownRemedy"
    assert "'x0', 'x1', 'x10' and " in first.message
    assert [outcome.reason for outcome in rest] == ["Applied"]
