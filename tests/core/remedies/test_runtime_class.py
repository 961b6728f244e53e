from __future__ import annotations

from tests.builders import decided, pod, policy, runtime_class, settled, view, why

POLICY = policy(remedies={"runtimeClass": {"name": "fast"}})
SEEN = view(POLICY, classes=[runtime_class("fast"), runtime_class("slow")])


def test_the_class_is_named_and_nothing_else_but_the_annotation() -> None:
    before = pod()
    after = settled(before, SEEN)
    assert after["spec"].pop("runtimeClassName") == "fast"
    assert after["metadata"].pop("annotations") == {
        "podsettle.dev/applied": "p/runtimeClass",
        "podsettle.dev/settled": "1/0/0/0",
    }
    assert after == before


def test_a_pod_that_names_the_class_is_settled() -> None:
    named = decided(pod(runtimeClassName="fast"), SEEN)
    assert why(named) == ["AlreadySettled"]
    assert named.operations == ()


def test_a_class_that_is_gone_does_not_matter_to_a_pod_that_names_it() -> None:
    assert why(decided(pod(runtimeClassName="fast"), view(POLICY))) == ["AlreadySettled"]


def test_another_class_stays() -> None:
    assert why(decided(pod(runtimeClassName="slow"), SEEN)) == ["RuntimeClassPreset"]


def test_of_two_policies_that_want_two_classes_the_pod_gets_one() -> None:
    relabel = {"skipSELinuxRelabel": {"pods": "All", "runtimeClassName": "slow"}}
    policies = [policy("low", remedies=relabel, priority=-1), POLICY]
    seen = view(*policies, classes=[runtime_class("fast"), runtime_class("slow")])
    decision = decided(pod(), seen)
    assert why(decision) == ["Applied", "RuntimeClassConflict"]
    after = settled(pod(), seen)
    assert after["spec"]["runtimeClassName"] == "fast"
    assert after["metadata"]["annotations"]["podsettle.dev/applied"] == "p/runtimeClass"


def test_two_policies_that_want_the_same_class_both_get_it() -> None:
    relabel = {"skipSELinuxRelabel": {"pods": "All", "runtimeClassName": "fast"}}
    seen = view(policy("low", remedies=relabel), POLICY, classes=[runtime_class("fast")])
    assert why(decided(pod(), seen)) == ["Applied", "UnstableSELinuxLevel"]
    after = settled(pod(), seen)
    assert after["spec"]["runtimeClassName"] == "fast"
    assert decided(after, seen).operations == ()
