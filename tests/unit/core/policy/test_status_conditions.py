"""Tests for the conditions in a policy's status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support import factories
from tests.support.defects import PINNED
from webhook.core.cluster.nodes import Node, Nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.policy.crd_comparison import CrdDifference
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.selectors import LabelSelector
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.status_conditions import (
    Condition,
    accepted,
    crd_current,
    merge_conditions,
    runtime_classes_found,
    webhook_scoped,
)
from webhook.core.policy.still_needed import all_nodes, still_needed
from webhook.core.policy.validation_errors import FieldError
from webhook.core.policy.webhook_selectors import WebhookSelectors, webhook_selectors
from webhook.core.remedies.policy_nodes import PolicyNodes


def policy(**remedies: Any) -> SettlePolicy:
    return factories.policy(remedies=remedies, namespaceSelector=None)


def nodes(*runtimes: str, kubelet: str = "v1.34.0") -> PolicyNodes:
    found = Nodes(
        (Node.read(f"n{number}", {}, runtime, kubelet) for number, runtime in enumerate(runtimes)),
        PINNED,
    )
    return all_nodes(Snapshot(nodes=found))


@pytest.mark.parametrize(
    ("earlier_in_force", "what"),
    [(True, "The last valid state stays in force: "), (False, "Not in force: ")],
)
def test_invalid_policy_lists_errors_with_their_paths(earlier_in_force: bool, what: str) -> None:
    problems = [FieldError(("spec", "a", n), "is wrong") for n in range(12)]
    found = accepted(problems, earlier_in_force)
    assert found[:3] == ("Accepted", "False", "Invalid")
    assert found.message.startswith(what + "spec.a[0]: is wrong; spec.a[1]: is wrong; ")
    assert found.message.endswith("; 2 more")


def test_old_crd_lists_up_to_five_missing_fields() -> None:
    assert crd_current(None)[1:3] == ("Unknown", "NotRead")
    assert crd_current(CrdDifference())[1:3] == ("True", "Current")
    found = crd_current(CrdDifference(tuple(f"spec.f{number}" for number in range(7))))
    assert found[:3] == ("CRDCurrent", "False", "Outdated")
    assert " lacks spec.f0, spec.f1, spec.f2, spec.f3, spec.f4 and 2 more. " in found.message
    assert found.message.endswith("-f charts/podsettle/crds.")


def test_crd_with_other_defaults_only_is_not_outdated() -> None:
    """After a rollback of podsettle the installed CRD is the newer one, and may stay."""
    found = crd_current(CrdDifference(other_defaults=("spec.a: 45s, not 30s",)))
    assert found[:3] == ("CRDCurrent", "Unknown", "OtherDefaults")
    assert "has other defaults than podsettle: spec.a: 45s, not 30s. " in found.message
    assert "older" not in found.message
    assert "drops" not in found.message


def test_webhook_scoped_says_whether_the_api_server_evaluates_selectors() -> None:
    opt_in = policy(postInitSleep={})
    selecting = opt_in.model_copy(
        update={"spec": opt_in.spec.model_copy(update={"namespace_selector": LabelSelector()})}
    )
    scope = webhook_selectors([opt_in, selecting])
    assert webhook_scoped(opt_in, scope) == Condition(
        "WebhookScoped",
        "True",
        "OptIn",
        "The API server calls podsettle for the pods of namespaces labelled "
        "podsettle.dev/policy: p.",
    )
    assert webhook_scoped(selecting, scope)[1:3] == ("True", "Selectors")
    broad = WebhookSelectors({}, "there are too many")
    assert webhook_scoped(opt_in, broad)[1:3] == ("True", "OptIn")
    found = webhook_scoped(selecting, broad)
    assert found[1:3] == ("False", "TooManySelectors")
    assert found.message.startswith("Broad, because there are too many. ")


def test_missing_runtime_class_is_named() -> None:
    named = policy(skipSELinuxRelabel={"runtimeClassName": "fast"})
    found = runtime_classes_found(named, Snapshot())
    assert found[1:3] == ("False", "RuntimeClassMissing")
    assert "fast" in found.message
    there = Snapshot(runtime_classes={"fast": RuntimeClassInfo("fast", "fast")})
    assert runtime_classes_found(named, there)[1:3] == ("True", "Found")
    assert runtime_classes_found(policy(postInitSleep={}), there)[1:3] == ("True", "NoneNamed")


AFFECTED, CURED, OTHER = "cri-o://1.33.12", "cri-o://1.36.0", "containerd://2.1.0"
RETRY = {"initContainers": ["prepare"]}


def needed(message: str) -> Condition:
    return Condition("StillNeeded", "True", "NodesAreAffected", message)


def test_affected_nodes_are_named() -> None:
    both = policy(postInitSleep={"when": "Always"}, retryInitExit255=RETRY)
    assert still_needed(both, nodes(AFFECTED, OTHER, "cri-o://1.34.8", CURED)) == needed(
        "2 of 4 nodes still run an affected CRI-O: n0 (cri-o 1.33.12), n2 (cri-o 1.34.8)."
    )


def test_remedy_that_no_release_fixes_keeps_the_policy_needed() -> None:
    never = "No release that podsettle knows makes kubeletGate unnecessary."
    for seen in (nodes(), nodes(CURED)):
        alone = still_needed(policy(kubeletGate={}), seen)
        assert alone == Condition("StillNeeded", "True", "NoReleaseCures", never)
    both = still_needed(policy(postInitSleep={}, kubeletGate={}), nodes(CURED))
    assert both[1:3] == ("True", "NoReleaseCures")
    assert both.message == f"postInitSleep: none of 1 nodes runs an affected CRI-O. {never}"


def test_each_remedy_is_listed_and_one_needed_remedy_suffices() -> None:
    several = policy(postInitSleep={}, retryInitExit255=RETRY, skipSELinuxRelabel={})
    assert still_needed(several, nodes(AFFECTED, CURED, kubelet="v1.37.0")) == needed(
        "postInitSleep, retryInitExit255: 1 of 2 nodes still runs an affected CRI-O: "
        "n0 (cri-o 1.33.12). skipSELinuxRelabel: on 2 of 2 nodes, CRI-O relabels only volumes "
        "that SELinuxMount of Kubernetes 1.37 does not mount with a label, such as those whose "
        "CSIDriver lacks seLinuxMount: true; podsettle does not know whether such volumes exist."
    )
    assert still_needed(several, nodes(OTHER)).message == (
        "postInitSleep, retryInitExit255: none of 1 nodes runs an affected CRI-O. "
        "skipSELinuxRelabel: none of 1 nodes runs CRI-O. The policy can be removed."
    )


# A RuntimeClass with a nodeSelector matches only some of the nodes.

POOL = Nodes(
    [
        Node.read("ci-1", {"pool": "ci"}, CURED, "v1.36.0"),
        Node.read("ci-2", {"pool": "ci"}, OTHER, "v1.36.0"),
        Node.read("other", {}, AFFECTED, "v1.33.0"),
    ],
    PINNED,
)


def pool(selector: dict[str, str], nodes: Nodes = POOL) -> PolicyNodes:
    classes = {"ci": RuntimeClassInfo("ci", "ci", {}, selector)}
    return all_nodes(Snapshot(runtime_classes=classes, nodes=nodes))


def test_need_of_skip_relabel_counts_only_nodes_of_its_class() -> None:
    relabel = policy(skipSELinuxRelabel={"runtimeClassName": "ci"})
    assert still_needed(relabel, pool({"pool": "ci"})).message == (
        "1 of 2 nodes of RuntimeClass ci still runs CRI-O below Kubernetes 1.37: "
        "ci-1 (cri-o 1.36.0)."
    )
    everywhere = "2 of 3 nodes still run CRI-O below Kubernetes 1.37: "
    for seen in (pool({}), all_nodes(Snapshot(nodes=POOL))):
        assert still_needed(relabel, seen).message.startswith(everywhere)
    found = still_needed(relabel, pool({"pool": "new"}))
    assert found[1:] == ("Unknown", "NoNodes", "No node of RuntimeClass ci is known.")


def test_answers_are_kept_while_nodes_and_classes_are_the_same() -> None:
    view = Snapshot(nodes=POOL)
    known = all_nodes(view)
    assert all_nodes(replace(view, namespaces={}), known) is known
    assert all_nodes(replace(view, nodes=Nodes(POOL.all, PINNED)), known) is not known
    assert all_nodes(replace(view, runtime_classes={}), known) is not known


def test_class_with_when_always_limits_the_nodes_of_other_remedies() -> None:
    chosen: dict[str, Any] = {"postInitSleep": {}, "skipSELinuxRelabel": {}}
    found = still_needed(policy(runtimeClass={"name": "ci"}, **chosen), pool({"pool": "ci"}))
    assert found == needed(
        "postInitSleep: none of 2 nodes of RuntimeClass ci runs an affected CRI-O. "
        "skipSELinuxRelabel: 1 of 2 nodes of RuntimeClass ci still runs CRI-O below Kubernetes "
        "1.37: ci-1 (cri-o 1.36.0). No release that podsettle knows makes runtimeClass "
        "unnecessary.",
    )


def test_condition_keeps_its_transition_time_while_its_status_stays() -> None:
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
