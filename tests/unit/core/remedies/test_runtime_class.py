from __future__ import annotations

import pytest

from tests.support.factories import (
    Json,
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


def test_missing_class_that_the_pod_already_names_causes_no_warning() -> None:
    assert reasons(decide_pod(pod(runtimeClassName="fast"), view(POLICY))) == ["AlreadySettled"]


def test_another_class_of_the_pod_is_kept() -> None:
    assert reasons(decide_pod(pod(runtimeClassName="slow"), SEEN)) == ["RuntimeClassPreset"]


def test_first_of_two_policies_sets_the_class() -> None:
    relabel = {"skipSELinuxRelabel": {"pods": "All", "runtimeClassName": "slow"}}
    policies = [policy("low", remedies=relabel, priority=-1), POLICY]
    seen = view(*policies, classes=[runtime_class("fast"), runtime_class("slow")])
    decision = decide_pod(pod(), seen)
    assert reasons(decision) == ["Applied", "RuntimeClassConflict"]
    after = mutate_pod(pod(), seen)
    assert after["spec"]["runtimeClassName"] == "fast"
    assert after["metadata"]["annotations"]["podsettle.dev/applied"] == "p/runtimeClass"


def test_two_remedies_with_the_same_class_are_both_applied() -> None:
    relabel = {"skipSELinuxRelabel": {"pods": "All", "runtimeClassName": "fast"}}
    seen = view(policy("low", remedies=relabel), POLICY, classes=[runtime_class("fast")])
    assert reasons(decide_pod(pod(), seen)) == ["Applied", "UnstableSELinuxLevel"]
    after = mutate_pod(pod(), seen)
    assert after["spec"]["runtimeClassName"] == "fast"
    assert decide_pod(after, seen).operations == ()


# A class only for volatile mounts has `when: NodesNeedIt`.

CRI_O = node("crio", "cri-o://1.33.12", labels={"pool": "crio"})
SLOW = node("slow", "containerd://2.1.5", labels={"pool": "slow"})


def volatile(*nodes: Json, when: str | None = "NodesNeedIt") -> Snapshot:
    settings = {"name": "fast"} | ({"when": when} if when else {})
    classes = [runtime_class("fast", None, {"pool": "volatile"})]
    return view(policy(remedies={"runtimeClass": settings}), classes=classes, nodes=nodes)


def test_class_is_set_by_default_whatever_the_nodes_run() -> None:
    for when in (None, "Always"):
        assert reasons(decide_pod(pod(), volatile(CRI_O, when=when))) == ["Applied"]


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
