"""Tests of the decision: which pods are unchanged, and which policy's remedy applies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    container,
    decide_pod,
    mutate_pod,
    namespace,
    node,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)
from webhook.core.policy.snapshot import Snapshot

APPLIED = "podsettle.dev/applied"
SKIP = "podsettle.dev/skip"
QUICK = container("prepare", "/entrypoint", "init")
FAST = [runtime_class("fast"), runtime_class("slow")]


def relabel(**fields: Any) -> dict[str, Any]:
    return {"skipSELinuxRelabel": {"pods": "All", **fields}}


def test_a_pod_selector_limits_the_policy_to_matching_pods() -> None:
    tekton = {"matchExpressions": [{"key": "tekton.dev/taskRun", "operator": "Exists"}]}
    seen = view(policy(podSelector=tekton))
    assert reasons(decide_pod(pod(QUICK, labels={"tekton.dev/taskRun": "x"}), seen)) == [
        "prepare: Applied"
    ]
    assert reasons(decide_pod(pod(QUICK), seen)) == ["NoPolicy"]


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


OS = {"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [OS]}]}
ON_WINDOWS = {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}
OF_WINDOWS = {"key": "node.kubernetes.io/windows-build", "operator": "Exists"}
BUILD_TERMS = {"nodeSelectorTerms": [{"matchExpressions": [OF_WINDOWS]}]}
ON_BUILD = {"requiredDuringSchedulingIgnoredDuringExecution": BUILD_TERMS}
ON_LINUX = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{**OS, "values": ["linux"]}]}]
    }
}
EMPTY_OPTIONS: dict[str, Any] = {"securityContext": {"windowsOptions": {}}}
FOR_WINDOWS = {"securityContext": {"windowsOptions": {"runAsUserName": "ContainerUser"}}}


def test_an_excluded_pod_is_unchanged() -> None:
    cases: list[tuple[dict[str, str], dict[str, Any], str]] = [
        ({"kubernetes.io/config.mirror": "hash"}, {}, "MirrorPod"),
        ({"kubernetes.io/config.mirror": ""}, {}, "MirrorPod"),
        ({SKIP: "true"}, {}, "PodOptedOut"),
        ({SKIP: " true "}, {}, "PodOptedOut"),
        ({}, {"os": {"name": "windows"}}, "WindowsPod"),
        ({}, {"nodeSelector": {"kubernetes.io/os": "windows"}}, "WindowsPod"),
        ({}, {"affinity": {"nodeAffinity": ON_WINDOWS}}, "WindowsPod"),
        ({}, {"nodeSelector": {OF_WINDOWS["key"]: "10.0.20348"}}, "WindowsPod"),
        ({}, {"affinity": {"nodeAffinity": ON_BUILD}}, "WindowsPod"),
        ({}, {"containers": [container("c", "cmd", **FOR_WINDOWS)]}, "WindowsPod"),
        ({}, {**FOR_WINDOWS, "affinity": {"nodeAffinity": ON_LINUX}}, "WindowsPod"),
    ]
    for given, spec, reason in cases:
        decision = decide_pod(pod(QUICK, annotations=given, **spec), view(policy()))
        assert (given, spec, reasons(decision)) == (given, spec, [reason])
        assert decision.operations == ()
        assert decision.warnings == []


@pytest.mark.parametrize(
    "spec",
    [
        EMPTY_OPTIONS,
        {"securityContext": {"windowsOptions": {"hostProcess": None}}},
        {"containers": [container("c", "x", **EMPTY_OPTIONS)]},
        {**FOR_WINDOWS, "nodeSelector": {"kubernetes.io/os": "linux"}},
        {"containers": [container("c", "x", **FOR_WINDOWS)], "os": {"name": "linux"}},
    ],
)
def test_options_for_windows_count_only_if_set_and_if_nothing_selects_linux(spec: Any) -> None:
    gated = policy(remedies={"kubeletGate": {}})
    assert reasons(decide_pod(pod(QUICK, **spec), view(gated))) == ["Applied"]


def test_a_pod_that_only_windows_nodes_fit_is_unchanged() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"nodeSelector": {"pool": "win"}}, "WindowsPod"),
        ({"nodeName": "w"}, "WindowsPod"),
        ({"nodeSelector": {"pool": "linux"}}, "Applied"),
        ({"nodeSelector": {"pool": "new"}}, "Applied"),
        ({"nodeSelector": {"pool": "win"}, "os": {"name": "linux"}}, "Applied"),
        ({}, "Applied"),
    ]
    seen = view(
        policy(remedies={"kubeletGate": {}}),
        nodes=[
            node("w", labels={"kubernetes.io/os": "windows", "pool": "win"}),
            node("n", labels={"kubernetes.io/os": "linux", "pool": "linux"}),
        ],
    )
    for spec, expected in cases:
        assert (spec, *reasons(decide_pod(pod(QUICK, **spec), seen))) == (spec, expected)


def test_the_skip_annotation_excludes_single_remedies() -> None:
    cases: list[tuple[str, list[str]]] = [
        ("runtimeClass", ["PodOptedOut", "prepare: Applied"]),
        ("postInitSleep", ["Applied", "PodOptedOut"]),
        ("runtimeClass,postInitSleep", ["PodOptedOut", "PodOptedOut"]),
        (" postInitSleep , runtimeClass ", ["PodOptedOut", "PodOptedOut"]),
        ("false", ["Applied", "prepare: Applied"]),
        ("", ["Applied", "prepare: Applied"]),
        ("nothing-of-ours", ["UnknownRemedy", "Applied", "prepare: Applied"]),
    ]
    both = policy(remedies={"postInitSleep": {}, "runtimeClass": {"name": "fast"}})
    seen = view(both, classes=FAST)
    found = [(s, reasons(decide_pod(pod(QUICK, annotations={SKIP: s}), seen))) for s, _ in cases]
    assert found == cases


def test_an_audit_reports_remedies_without_changing_the_pod() -> None:
    remedies = {"postInitSleep": {}, "runtimeClass": {"name": "gone"}, **relabel()}
    decision = decide_pod(pod(QUICK), view(policy(action="Audit", remedies=remedies)))
    assert reasons(decision) == ["RuntimeClassMissing", "WouldApply", "prepare: WouldApply"]
    assert decision.outcomes[1].message.startswith("would have the reason UnstableSELinuxLevel: ")
    assert decision.operations == ()
    assert "applied" not in decision.audit_annotations


def test_applied_remedies_are_added_to_the_applied_annotation() -> None:
    cases: list[tuple[str | None, str]] = [
        (None, "p/postInitSleep"),
        ("", "p/postInitSleep"),
        ("p/postInitSleep", "p/postInitSleep"),
        ("old/runtimeClass", "old/runtimeClass,p/postInitSleep"),
    ]
    for before, after in cases:
        annotations = {} if before is None else {APPLIED: before}
        found = mutate_pod(pod(QUICK, annotations=annotations), view(policy()))
        assert (before, found["metadata"]["annotations"][APPLIED]) == (before, after)


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
