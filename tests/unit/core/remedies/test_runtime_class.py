"""Tests of the two remedies with a RuntimeClass: when the class is set, and when it is not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.factories import (
    Decided,
    Json,
    container,
    decide_pod,
    mutate_pod,
    node,
    patched,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)
from tests.support.patches import changes
from webhook.core.policy.snapshot import Snapshot

POLICY = policy(remedies={"runtimeClass": {"name": "fast"}})
SEEN = view(POLICY, classes=[runtime_class("fast"), runtime_class("slow")])


def test_class_is_set_and_only_the_annotations_are_added() -> None:
    before = pod()
    after = mutate_pod(before, SEEN)
    assert after["spec"].pop("runtimeClassName") == "fast"
    assert after["metadata"].pop("annotations") == {
        "podsettle.dev/applied": "p/runtimeClass",
        "podsettle.dev/settled": "1/0/0/0",
        "podsettle.dev/summary": "The pod is put under RuntimeClass fast, by policy p.",
    }
    assert after == before


def test_pod_that_already_names_the_class_is_unchanged() -> None:
    named = decide_pod(pod(runtimeClassName="fast"), SEEN)
    assert reasons(named) == ["AlreadySettled"]
    assert named.operations == ()


def test_first_of_two_policies_sets_the_class() -> None:
    relabel = {"skipSELinuxRelabel": {"pods": "All", "runtimeClassName": "slow"}}
    policies = [policy("low", remedies=relabel, priority=-1), POLICY]
    seen = view(*policies, classes=[runtime_class("fast"), runtime_class("slow")])
    decision = decide_pod(pod(), seen)
    assert reasons(decision) == ["Applied", "RuntimeClassConflict"]
    after = mutate_pod(pod(), seen)
    assert after["spec"]["runtimeClassName"] == "fast"
    assert after["metadata"]["annotations"]["podsettle.dev/applied"] == "p/runtimeClass"


# A class only for volatile mounts has `when: NodesNeedIt`.

CRI_O = node("crio", "cri-o://1.33.12", labels={"pool": "crio"})
SLOW = node("slow", "containerd://2.1.5", labels={"pool": "slow"})


def volatile(*nodes: Json, when: str | None = "NodesNeedIt") -> Snapshot:
    settings = {"name": "fast"} | ({"when": when} if when else {})
    classes = [runtime_class("fast", None, {"pool": "volatile"})]
    return view(policy(remedies={"runtimeClass": settings}), classes=classes, nodes=nodes)


@pytest.mark.parametrize(
    ("nodes", "spec", "reason"),
    [
        ([CRI_O], {}, "NotNeeded"),
        ([CRI_O, SLOW], {}, "Applied"),
        ([CRI_O, SLOW], {"nodeSelector": {"zone": "new"}}, "Applied"),
        ([CRI_O, SLOW], {"nodeSelector": {"pool": "crio"}}, "NotNeeded"),
        ([CRI_O, SLOW], {"nodeName": "crio"}, "NotNeeded"),
        ([CRI_O, SLOW], {"nodeName": "crio", "runtimeClassName": "slow"}, "NotNeeded"),
        ([node("old", "cri-o://1.21.7")], {}, "Applied"),
        ([node("what", "")], {}, "Applied"),
        ([], {}, "Applied"),
    ],
)
def test_nodes_need_it_skips_the_class_if_all_nodes_run_cri_o(
    nodes: list[Json], spec: Json, reason: str
) -> None:
    decision = decide_pod(pod(**spec), volatile(*nodes))
    assert reasons(decision) == [reason]
    assert bool(decision.operations) is (reason == "Applied")


def test_need_is_decided_by_the_nodes_without_the_class() -> None:
    """The class may move the pod from affected nodes to CRI-O nodes."""
    cured = node("cured", "cri-o://1.36.0", labels={"pool": "volatile"})
    seen = volatile(cured, SLOW)
    decision = decide_pod(pod(), seen)
    assert reasons(decision) == ["Applied"]
    merged = patched(pod(), decision)
    merged["spec"]["nodeSelector"] = {"pool": "volatile"}
    assert reasons(decide_pod(merged, seen)) == ["AlreadySettled"]


@pytest.mark.parametrize("remedies", [
    {"runtimeClass": {"name": "fast"}},
    {"skipSELinuxRelabel": {"pods": "All", "runtimeClassName": "fast", "when": "Always"}},
])  # fmt: skip
def test_message_says_that_no_known_node_has_the_labels_of_the_class(remedies: Json) -> None:
    labelled = {
        **runtime_class("fast"),
        "scheduling": {"nodeSelector": {"rootfs": "volatile", "zone": "a"}},
    }
    level = {"seLinuxOptions": {"level": "s0:c1,c2"}}

    def message(*nodes: Json) -> str:
        seen = view(policy(remedies=remedies), classes=[labelled], nodes=nodes)
        (outcome,) = decide_pod(pod(securityContext=level), seen).outcomes
        assert outcome.reason == "Applied"
        return outcome.message

    runtime, kubelet = "cri-o://1.33.12", "v1.33.12"
    waits = (
        "; no known node has the labels of the class (rootfs=volatile,zone=a), "
        "so the pod waits for one"
    )
    assert message(node("a", runtime, kubelet, {"rootfs": "volatile"})).endswith(waits)
    both = {"rootfs": "volatile", "zone": "a"}
    assert message(node("a", runtime, kubelet, both)).endswith("put under fast")


def decision(selector: dict[str, Any] | None = None, **spec: Any) -> Decided:
    return decide_pod(pod(**spec), view(POLICY, classes=[runtime_class("fast", None, selector)]))


def test_missing_class_is_not_set() -> None:
    seen = view(POLICY)
    assert reasons(decide_pod(pod(), seen)) == ["RuntimeClassMissing"]
    assert changes(decide_pod(pod(), seen)) == []


@pytest.mark.parametrize(
    ("of_pod", "of_class"),
    [
        ({"cpu": "250m"}, {"cpu": "0.25"}),
        ({"cpu": "1"}, {"cpu": 1}),
        ({"cpu": "1000m", "memory": "1Gi"}, {"memory": "1024Mi", "cpu": "1"}),
        ({"memory": "1e3"}, {"memory": "1k"}),
        ({"memory": "1E"}, {"memory": "1e18"}),
        ({"memory": "128974848"}, {"memory": "123Mi"}),
        ({"memory": "128974848000m"}, {"memory": "123Mi"}),
        ({"cpu": "500000u"}, {"cpu": "500000000n"}),
        ({"cpu": ".5"}, {"cpu": "500m"}),
        ({}, {"cpu": "1"}),
        (None, {"cpu": "1"}),
    ],
)
def test_overhead_is_compared_as_quantities(of_pod: Any, of_class: dict[str, Any]) -> None:
    seen = view(POLICY, classes=[runtime_class("fast", of_class)])
    assert reasons(decide_pod(pod(overhead=of_pod), seen)) == ["Applied"]


@pytest.mark.parametrize(
    ("of_pod", "of_class"),
    [
        ({"cpu": "250m"}, {"cpu": "0.251"}),
        ({"cpu": "250m"}, {"cpu": "250m", "memory": "1Mi"}),
        ({"cpu": "250m", "memory": "1Mi"}, {"cpu": "250m"}),
        ({"cpu": "250m"}, None),
        ({"memory": "1M"}, {"memory": "1Mi"}),
        ({"memory": "1E"}, {"memory": "1e1"}),
        ({"cpu": "1.2.3"}, {"cpu": "1.2"}),
        ({"cpu": "lots"}, {"cpu": "1"}),
        # Python refuses numbers of more than 4,300 digits.
        *(
            ({"cpu": text}, {"cpu": "1"})
            for text in (
                "1" * 5000,
                "0." + "1" * 5000,
                "1e" + "9" * 5000,
                "1e-" + "9" * 5000,
                "1e" + "9" * 30,
                "." * 5000,
                "1" * 4_000_000,
            )
        ),
        ({"cpu": int("1" * 4300)}, {"cpu": "1"}),
    ],
)
def test_class_with_another_overhead_is_not_set(
    of_pod: dict[str, Any], of_class: dict[str, Any] | None
) -> None:
    seen = view(POLICY, classes=[runtime_class("fast", of_class)])
    assert reasons(decide_pod(pod(overhead=of_pod), seen)) == ["RuntimeClassConflict"]


@pytest.mark.parametrize(
    ("of_pod", "reason"),
    [
        (None, "Applied"),
        ({"arch": "arm64"}, "Applied"),
        ({"rootfs": "volatile"}, "Applied"),
        ({"rootfs": "durable"}, "RuntimeClassConflict"),
        ({"rootfs": ""}, "RuntimeClassConflict"),
    ],
)
def test_class_with_a_conflicting_node_selector_is_not_set(
    of_pod: dict[str, str] | None, reason: str
) -> None:
    assert reasons(decision(selector={"rootfs": "volatile"}, nodeSelector=of_pod)) == [reason]


def test_class_with_a_node_selector_is_not_set_on_a_bound_pod() -> None:
    bound = decision(selector={"rootfs": "volatile"}, nodeName="worker-1")
    assert reasons(bound) == ["RuntimeClassConflict"]
    assert reasons(decision(nodeName="worker-1")) == ["Applied"]


def named(*names: str, key: str = "metadata.name") -> dict[str, Any]:
    """Return the affinity of a pod that names its nodes, as that of a DaemonSet does."""
    requirement = {"key": key, "operator": "In", "values": list(names)}
    group = "matchFields" if key == "metadata.name" else "matchExpressions"
    required = {"nodeSelectorTerms": [{group: [requirement]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


HOSTNAME = "kubernetes.io/hostname"
OF_DAEMON_SET = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "u"}]


@pytest.mark.parametrize(
    ("spec", "owners", "reason"),
    [
        ({"affinity": named("plain")}, OF_DAEMON_SET, "RuntimeClassConflict"),
        ({"affinity": named("fast")}, OF_DAEMON_SET, "Applied"),
        ({"affinity": named("unknown")}, OF_DAEMON_SET, "RuntimeClassConflict"),
        # The template of a DaemonSet, before its controller has chosen a node.
        ({}, OF_DAEMON_SET, "RuntimeClassConflict"),
        ({"nodeSelector": {"rootfs": "volatile"}}, OF_DAEMON_SET, "Applied"),
        ({"affinity": named("plain")}, [], "RuntimeClassConflict"),
        ({"affinity": named("plain", "fast")}, [], "Applied"),
        ({"affinity": named("plain", key=HOSTNAME)}, [], "RuntimeClassConflict"),
        ({"nodeSelector": {HOSTNAME: "plain"}}, [], "RuntimeClassConflict"),
        ({"nodeSelector": {HOSTNAME: "fast"}}, [], "Applied"),
        # Another node may join.
        ({"nodeSelector": {"zone": "b"}}, [], "Applied"),
        ({}, [], "Applied"),
    ],
)
def test_class_that_chooses_other_nodes_than_the_pod_is_not_set(
    spec: dict[str, Any], owners: list[Any], reason: str
) -> None:
    nodes = [
        node(name, "containerd://2.1.5", labels={HOSTNAME: name, "rootfs": rootfs})
        for name, rootfs in (("plain", "durable"), ("fast", "volatile"))
    ]
    classes = [runtime_class("fast", None, {"rootfs": "volatile"})]
    given = pod(**spec)
    given["metadata"]["ownerReferences"] = owners
    assert reasons(decide_pod(given, view(POLICY, classes=classes, nodes=nodes))) == [reason]
    assert reasons(decide_pod(given, view(POLICY, classes=classes))) == ["Applied"]


def test_class_of_the_pod_is_never_replaced() -> None:
    preset = decision(runtimeClassName="kata")
    assert reasons(preset) == ["RuntimeClassPreset"]
    assert changes(preset) == []
    assert "'kata'" in preset.outcomes[0].message


# The nodes of the pod's class. The API server merges its nodeSelector before and after the webhook.

POOL = {"pool": "ci"}
AFFECTED, CURED = "cri-o://1.33.12", "cri-o://1.33.13"
QUICK = container("prepare", "/entrypoint", "init")


def two_pools(in_pool: str, elsewhere: str, **remedies: Any) -> Snapshot:
    nodes = [
        node("ci", in_pool, labels={**POOL, "zone": "a"}),
        node("other", elsewhere, labels={"pool": "other", "zone": "b"}),
    ]
    chosen: Json = {"postInitSleep": {}, **remedies}
    return view(policy(remedies=chosen), classes=[runtime_class("fast", None, POOL)], nodes=nodes)


SET_BY_THE_POLICY: list[Json] = [
    {"runtimeClass": {"name": "fast"}},
    {"skipSELinuxRelabel": {"pods": "All", "runtimeClassName": "fast"}},
]


@pytest.mark.parametrize("remedies", SET_BY_THE_POLICY)
@pytest.mark.parametrize(
    ("in_pool", "elsewhere", "reason"),
    [(CURED, AFFECTED, "NotNeeded"), (AFFECTED, CURED, "Applied")],
)
def test_only_nodes_of_the_class_that_the_policy_sets_count(
    remedies: Json, in_pool: str, elsewhere: str, reason: str
) -> None:
    seen = two_pools(in_pool, elsewhere, **remedies)
    first = decide_pod(pod(QUICK), seen)
    assert reasons(first)[-1] == f"prepare: {reason}"
    merged = patched(pod(QUICK), first)
    assert decide_pod(merged, seen).operations == ()
    merged["spec"]["nodeSelector"] = POOL
    assert decide_pod(merged, seen).operations == ()


@pytest.mark.parametrize(
    ("in_pool", "elsewhere", "reason"),
    [(CURED, AFFECTED, "NotNeeded"), (AFFECTED, CURED, "Applied")],
)
def test_only_nodes_of_the_class_that_the_pod_names_count(
    in_pool: str, elsewhere: str, reason: str
) -> None:
    """Both before the API server has merged the nodeSelector, as in a preview, and after."""
    seen = two_pools(in_pool, elsewhere)
    for selector in (None, POOL):
        asked = decide_pod(pod(QUICK, runtimeClassName="fast", nodeSelector=selector), seen)
        assert reasons(asked) == [f"prepare: {reason}"]


def test_image_volume_support_is_judged_by_the_nodes_of_the_class() -> None:
    """Nodes that the pod can no longer land on do not count."""
    nodes = [
        node("ci", "cri-o://1.35.2", "v1.36.0", POOL),
        node("other", AFFECTED, "v1.33.0", {"pool": "other"}),
    ]
    remedies: Json = {
        "runtimeClass": {"name": "fast"},
        "postInitSleep": {"delivery": "ImageVolume"},
    }
    classes = [runtime_class("fast", None, POOL)]
    seen = view(policy(remedies=remedies), classes=classes, nodes=nodes)
    assert reasons(decide_pod(pod(QUICK), seen)) == ["Applied", "prepare: Applied"]


CLAIM: Json = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
LEVEL: Json = {"securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}}}
BOTH_REMEDIES: list[Json] = [
    {"runtimeClass": {"name": "fast"}},
    {"skipSELinuxRelabel": {"runtimeClassName": "fast"}},
]
SSD = {"disk": "ssd"}
WITH, WITHOUT, UNKNOWN = ["", "fast"], ["", "kata"], None


def nodes_with(*handlers: Iterable[str] | None, labels: Json | None = None) -> list[Json]:
    return [node(f"n{n}", labels=labels, handlers=each) for n, each in enumerate(handlers)]


def decide_on(
    remedies: Json, known: list[Json], selector: Json | None = None, **spec: Any
) -> Decided:
    seen = view(
        policy(remedies=remedies), classes=[runtime_class("fast", None, selector)], nodes=known
    )
    return decide_pod(pod(**CLAIM, **LEVEL, **spec), seen)


@pytest.mark.parametrize("remedies", BOTH_REMEDIES)
@pytest.mark.parametrize(
    ("handlers", "reason"),
    [
        ([WITHOUT], "RuntimeClassUnhandled"),
        ([WITHOUT, [""]], "RuntimeClassUnhandled"),
        ([WITHOUT, WITH], "Applied"),
        ([WITHOUT, UNKNOWN], "Applied"),
        ([WITHOUT, []], "Applied"),
        ([UNKNOWN], "Applied"),
        ([], "Applied"),
    ],
)
def test_class_is_skipped_only_if_every_node_lists_handlers_without_its_own(
    remedies: Json, handlers: list[Iterable[str] | None], reason: str
) -> None:
    decision = decide_on(remedies, nodes_with(*handlers))
    assert reasons(decision) == [reason]
    assert bool(decision.applied_pairs) == (reason == "Applied")
    assert "runtimeClassName" not in str(decision.operations) or reason == "Applied"


@pytest.mark.parametrize("remedies", BOTH_REMEDIES)
def test_only_nodes_that_the_pod_could_land_on_with_the_class_count(remedies: Json) -> None:
    mixed = [*nodes_with(WITHOUT, labels=SSD), node("other", handlers=WITH)]
    assert reasons(decide_on(remedies, mixed)) == ["Applied"]
    assert reasons(decide_on(remedies, mixed, SSD)) == ["RuntimeClassUnhandled"]
    assert reasons(decide_on(remedies, mixed, nodeSelector=SSD)) == ["RuntimeClassUnhandled"]
    assert reasons(decide_on(remedies, mixed, nodeName="n0")) == ["RuntimeClassUnhandled"]
    # The pod waits for a node that is not known, which may have the handler.
    assert reasons(decide_on(remedies, mixed, {"disk": "none"})) == ["Applied"]


@pytest.mark.parametrize("remedies", BOTH_REMEDIES)
def test_windows_node_that_lists_no_handlers_does_not_count(remedies: Json) -> None:
    windows = node("w", "containerd://2.1.5", labels={"kubernetes.io/os": "windows"})
    assert reasons(decide_on(remedies, [*nodes_with(WITHOUT), windows])) == [
        "RuntimeClassUnhandled"
    ]
    assert reasons(decide_on(remedies, [*nodes_with(WITH), windows])) == ["Applied"]


def test_message_names_the_class_and_its_handler() -> None:
    (outcome,) = decide_on(BOTH_REMEDIES[0], nodes_with(WITHOUT)).unmet
    assert outcome.sentence == (
        "no node that the pod could land on lists the handler 'fast' of RuntimeClass 'fast'"
    )
