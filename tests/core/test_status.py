"""What a policy's status says."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.cluster.snapshot import Snapshot
from webhook.core.nodes import Node, Nodes
from webhook.core.policy import PolicyProblem, SettlePolicy, parse_policy
from webhook.core.runtime_classes import RuntimeClass
from webhook.core.status import (
    Condition,
    accepted,
    merge_conditions,
    runtime_classes_found,
    still_needed,
)


def policy(**remedies: Any) -> SettlePolicy:
    return parse_policy(
        {
            "apiVersion": "podsettle.dev/v1alpha1",
            "kind": "SettlePolicy",
            "metadata": {"name": "p"},
            "spec": {"remedies": remedies},
        }
    )


def nodes(*runtimes: str) -> Nodes:
    return Nodes(
        Node.read(f"n{number}", {}, runtime, "v1.34.0") for number, runtime in enumerate(runtimes)
    )


def test_a_valid_policy_is_accepted() -> None:
    assert accepted((), True)[:3] == ("Accepted", "True", "Valid")


@pytest.mark.parametrize(
    ("in_force", "what"),
    [(True, "The last valid state stays in force: "), (False, "Not in force: ")],
)
def test_every_problem_is_told_with_its_path(in_force: bool, what: str) -> None:
    problems = [PolicyProblem(("spec", "a", n), "is wrong") for n in range(12)]
    found = accepted(problems, in_force)
    assert found[:3] == ("Accepted", "False", "Invalid")
    assert found.message.startswith(what + "spec.a[0]: is wrong; spec.a[1]: is wrong; ")
    assert found.message.endswith("; 2 more")


def test_a_class_that_does_not_exist_is_named() -> None:
    named = policy(skipSELinuxRelabel={"runtimeClassName": "fast"})
    found = runtime_classes_found(named, Snapshot())
    assert found[1:3] == ("False", "RuntimeClassMissing")
    assert "fast" in found.message
    there = Snapshot(runtime_classes={"fast": RuntimeClass("fast", "fast")})
    assert runtime_classes_found(named, there)[1:3] == ("True", "Found")
    assert runtime_classes_found(policy(postInitSleep={}), there)[1:3] == ("True", "NoneNamed")


def test_nodes_that_still_need_it_are_named() -> None:
    found = still_needed(
        policy(postInitSleep={}),
        nodes("cri-o://1.33.12", "containerd://2.1.0", "cri-o://1.34.8", "cri-o://1.36.0"),
    )
    assert found == Condition(
        "StillNeeded",
        "True",
        "NodesAreAffected",
        "2 of 4 nodes still run an affected CRI-O: n0 (cri-o 1.33.12), n2 (cri-o 1.34.8).",
    )


def test_of_many_nodes_some_are_named() -> None:
    found = still_needed(policy(postInitSleep={}), nodes(*["cri-o://1.33.12"] * 8))
    assert found.message.endswith("n4 (cri-o 1.33.12) and 3 more.")


def test_once_all_are_fixed_the_policy_can_go() -> None:
    found = still_needed(policy(postInitSleep={}), nodes("cri-o://1.36.0"))
    assert found[1:3] == ("False", "NodesAreFixed")
    assert still_needed(policy(postInitSleep={}), nodes())[1:3] == ("Unknown", "NoNodes")


def test_a_remedy_that_no_release_replaces_keeps_it_needed() -> None:
    both = policy(postInitSleep={}, skipSELinuxRelabel={})
    found = still_needed(both, nodes("cri-o://1.36.0"))
    assert found[1:3] == ("True", "NoReleaseCures")
    assert "skipSELinuxRelabel" in found.message


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    wanted = [
        Condition("Accepted", "True", "Valid", "m"),
        Condition("StillNeeded", "True", "r", "m"),
    ]
    before = [
        {"type": "Accepted", "status": "True", "lastTransitionTime": "then"},
        {"type": "StillNeeded", "status": "False", "lastTransitionTime": "then"},
    ]
    merged = merge_conditions(wanted, before, 7, "now")
    assert [c["lastTransitionTime"] for c in merged] == ["then", "now"]
    assert {c["observedGeneration"] for c in merged} == {7}
    assert merge_conditions(wanted, (), 7, "now")[0]["lastTransitionTime"] == "now"
