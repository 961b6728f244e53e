from __future__ import annotations

from typing import Any

import pytest

from tests.support.complexity import cpu_ratio
from tests.support.factories import (
    LINGER,
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
from webhook.core.defects.versions import Version
from webhook.core.policy.snapshot import Snapshot

QUICK = container("prepare", "/entrypoint", "init")
RULE: Json = {"action": "Restart", "exitCodes": {"operator": "In", "values": [255]}}
NEW, AFFECTED, CURED = Version(1, 36, 2), "cri-o://1.35.2", "cri-o://1.35.3"


def make_view(*nodes: Json, server: Version | None = NEW, **settings: Any) -> Snapshot:
    remedies = {"retryInitExit255": {"initContainers": ["prepare"], **settings}}
    return view(policy(remedies=remedies), nodes=nodes, server=server)


def finished(*init: Json, **spec: Any) -> Json:
    """Return a pod whose restartPolicy is Never."""
    return pod(*init, restartPolicy="Never", **spec)


def test_only_the_named_container_gets_the_rule() -> None:
    before = finished(container("first", "/x"), QUICK, container("prepare-2", "/y"))
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["prepare: Applied"]
    after = patched(before, decision)
    annotations = after["metadata"].pop("annotations")
    assert annotations.pop("podsettle.dev/settled")
    assert annotations == {
        "podsettle.dev/applied": "p/retryInitExit255",
        "podsettle.dev/summary": "prepare is started again after exit code 255, by policy p.",
    }
    changed = after["spec"]["initContainers"][1]
    assert changed.pop("restartPolicy") == "Never"
    assert changed.pop("restartPolicyRules") == [RULE]
    assert after == before


def test_several_named_containers_get_the_rule() -> None:
    before = finished(container("a", "/a"), container("b", "/b"), container("c"))
    after = mutate_pod(before, make_view(initContainers=["c", "a", "none-such"]))
    assert ["restartPolicyRules" in c for c in after["spec"]["initContainers"]] == [
        True, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize("fields", [{}, {"initContainers": None}, {"initContainers": []}])
def test_pod_without_the_named_container_has_no_outcome(fields: Json) -> None:
    assert reasons(decide_pod(pod(restartPolicy="Never", **fields), make_view())) == []


@pytest.mark.parametrize("name", ["podsettle-linger", "podsettle-kubelet-gate", "main"])
def test_injected_and_regular_containers_get_no_rule(name: str) -> None:
    before = finished(container("podsettle-linger", "/linger"))
    before["spec"]["initContainers"].append(container("podsettle-kubelet-gate", "/linger"))
    assert reasons(decide_pod(before, make_view(initContainers=[name]))) == []


# Containers that are restarted anyway, or must not be.


@pytest.mark.parametrize("restarts", ["OnFailure", "Always", None])
def test_pod_with_another_restart_policy_is_unchanged(restarts: str | None) -> None:
    decision = decide_pod(pod(QUICK, restartPolicy=restarts), make_view())
    assert reasons(decision) == ["prepare: AlreadySettled"]
    assert decision.outcomes[0].message == (
        "the pod's restartPolicy restarts it after every failure"
    )  # fmt: skip
    assert decision.operations == ()


def rule(operator: str, *values: int, action: str = "Restart") -> Json:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"restartPolicy": "Always"}, "NativeSidecar"),
        ({"restartPolicy": "Always", "restartPolicyRules": [RULE]}, "NativeSidecar"),
        ({"restartPolicy": "OnFailure"}, "AlreadySettled"),
        ({"restartPolicy": "Never"}, "RestartPolicyPreset"),
        ({"restartPolicy": "Never", "restartPolicyRules": []}, "RestartPolicyPreset"),
        ({"restartPolicy": "Never", "restartPolicyRules": [rule("In", 1)]}, "RestartPolicyPreset"),
        ({"restartPolicy": "Never", "restartPolicyRules": [rule("In", 1, 255)]}, "AlreadySettled"),
        ({"restartPolicy": "Never", "restartPolicyRules": [rule("NotIn", 1)]}, "AlreadySettled"),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [rule("NotIn", 255)]},
            "RestartPolicyPreset",
        ),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [rule("In", 1), RULE]},
            "AlreadySettled",
        ),
        (
            # The first rule about the exit code decides.
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [rule("In", 255, action="Fail"), RULE],
            },
            "RestartPolicyPreset",
        ),
        (
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [rule("In", 255, action="RestartAllContainers")],
            },
            "AlreadySettled",
        ),
        ({"restartPolicyRules": [{"action": "Restart"}]}, "RestartPolicyPreset"),
        ({"restartPolicyRules": [rule("Near", 255)]}, "RestartPolicyPreset"),
        ({"restartPolicy": None, "restartPolicyRules": None}, "Applied"),
        ({"restartPolicy": None, "restartPolicyRules": []}, "Applied"),
    ],
)
def test_restart_settings_of_the_container_are_kept(fields: Json, reason: str) -> None:
    decision = decide_pod(finished(QUICK | fields), make_view())
    assert reasons(decision) == [f"prepare: {reason}"]
    assert bool(decision.operations) is (reason == "Applied")


def test_tekton_sidecar_gets_no_rule() -> None:
    look = make_view(initContainers=["sidecar-results"])
    assert reasons(decide_pod(finished(container("sidecar-results", "/x")), look)) == [
        "sidecar-results: NativeSidecar"
    ]


# Versions of the server and the nodes.


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (Version(1, 33, 9), "ServerTooOld"),
        (Version(1, 34, 9), "ServerTooOld"),
        (Version(1, 35, 0, final=False), "ServerTooOld"),
        (None, "ServerTooOld"),
        (Version(1, 35), "Applied"),
        (Version(1, 37), "Applied"),
    ],
)
def test_rule_needs_a_server_that_supports_it(server: Version | None, reason: str) -> None:
    decision = decide_pod(finished(QUICK), make_view(server=server))
    assert reasons(decision) == [f"prepare: {reason}"]
    assert len(decision.warnings) == (reason == "ServerTooOld")
    assert bool(changes(decision)) is (reason == "Applied")


@pytest.mark.parametrize(
    ("kubelet", "reason"), [("v1.35.1", "Applied"), ("v1.34.9", "ServerTooOld")]
)
def test_kubelets_decide_if_the_server_version_is_unknown(kubelet: str, reason: str) -> None:
    look = make_view(node("n", AFFECTED, kubelet), server=None)
    assert reasons(decide_pod(finished(QUICK), look)) == [f"prepare: {reason}"]


@pytest.mark.parametrize(
    ("nodes", "when", "reason"),
    [
        ([node("a", CURED, "v1.35.3")], "NodesNeedIt", "NotNeeded"),
        ([node("a", CURED, "v1.35.3")], "Always", "Applied"),
        ([node("a", "containerd://2.1.5", "v1.36.0")], "NodesNeedIt", "NotNeeded"),
        ([node("a", AFFECTED, "v1.35.2")], "NodesNeedIt", "Applied"),
        ([node("a", AFFECTED, "v1.34.0")], "NodesNeedIt", "ServerTooOld"),
        ([node("a", AFFECTED, "")], "NodesNeedIt", "ServerTooOld"),
        ([node("a", AFFECTED, "v1.35.2"), node("b", AFFECTED, "v1.34.0")], "NodesNeedIt",
         "ServerTooOld"),
        # A node that is not affected does not need the rule.
        ([node("a", AFFECTED, "v1.35.2"), node("b", "cri-o://1.34.9", "v1.34.9")], "NodesNeedIt",
         "Applied"),
        ([node("a", AFFECTED, "v1.35.2"), node("b", "cri-o://1.34.9", "v1.34.9")], "Always",
         "ServerTooOld"),
        ([], "NodesNeedIt", "Applied"),
    ],
)  # fmt: skip
def test_rule_needs_nodes_that_support_it(nodes: list[Json], when: str, reason: str) -> None:
    decision = decide_pod(finished(QUICK), make_view(*nodes, when=when))
    assert reasons(decision) == [f"prepare: {reason}"]


def test_only_nodes_that_the_pod_could_land_on_count() -> None:
    nodes = [
        node("old", AFFECTED, "v1.34.0", {"pool": "old"}),
        node("new", AFFECTED, "v1.35.2", {"pool": "new"}),
        node("cured", CURED, "v1.35.3", {"pool": "cured"}),
    ]
    for pool, reason in (("old", "ServerTooOld"), ("new", "Applied"), ("cured", "NotNeeded")):
        before = finished(QUICK, nodeSelector={"pool": pool})
        assert reasons(decide_pod(before, make_view(*nodes))) == [f"prepare: {reason}"]


def test_node_selector_of_a_class_counts_in_the_first_call() -> None:
    pool = runtime_class("volatile", selector={"pool": "volatile"})
    other = node("other", CURED, "v1.35.3", {"pool": "other"})
    remedies: Json = {
        "runtimeClass": {"name": "volatile"},
        "retryInitExit255": {"initContainers": ["prepare"]},
    }
    look = view(policy(remedies=remedies), classes=[pool], nodes=[other], server=NEW)
    before = finished(QUICK)
    decision = decide_pod(before, look)
    assert reasons(decision) == ["Applied", "prepare: Applied"]
    merged = patched(before, decision)
    merged["spec"]["nodeSelector"] = {"pool": "volatile"}
    assert decide_pod(merged, look).operations == ()


# Together with other remedies.


def test_rule_and_post_init_sleep_are_combined() -> None:
    remedies: Json = {"postInitSleep": {}, "retryInitExit255": {"initContainers": ["prepare"]}}
    look = view(policy(remedies=remedies), server=NEW)
    after = mutate_pod(finished(container("first", "sh"), QUICK), look)
    *_, wrapped = after["spec"]["initContainers"]
    assert wrapped["command"] == [*LINGER, "/entrypoint", "init"]
    assert wrapped["restartPolicyRules"] == [RULE]
    applied = after["metadata"]["annotations"]["podsettle.dev/applied"]
    assert applied == "p/postInitSleep,p/retryInitExit255"
    assert decide_pod(after, look).operations == ()


def test_second_call_changes_nothing() -> None:
    once = mutate_pod(finished(QUICK), make_view())
    again = decide_pod(once, make_view())
    assert reasons(again) == ["prepare: AlreadySettled"]
    assert again.operations == ()


def test_audit_changes_nothing() -> None:
    remedies = {"retryInitExit255": {"initContainers": ["prepare"]}}
    decision = decide_pod(
        finished(QUICK), view(policy(remedies=remedies, action="Audit"), server=NEW)
    )
    assert reasons(decision) == ["prepare: WouldApply"]
    assert decision.operations == ()


@pytest.mark.parametrize(
    ("server", "nodes", "message"),
    [
        (
            Version(1, 34, 2),
            [],
            "needs Kubernetes 1.35 or later; the API server is Kubernetes 1.34.2",
        ),
        (None, [node("a", AFFECTED, "v1.34.2")], "the newest kubelet is 1.34.2"),
        (None, [], "needs Kubernetes 1.35 or later; the API server's version is unknown"),
    ],
)
def test_message_names_the_known_version_of_an_old_server(
    server: Version | None, nodes: list[Json], message: str
) -> None:
    remedies = {"retryInitExit255": {"initContainers": ["prepare"]}}
    seen = view(policy(remedies=remedies), nodes=nodes, server=server)
    (outcome,) = decide_pod(pod(container("prepare", "/x"), restartPolicy="Never"), seen).outcomes
    assert outcome.reason == "ServerTooOld"
    assert message in outcome.message


def test_nodes_are_compared_once_for_hundreds_of_containers_of_one_name() -> None:
    """The API server rejects such a pod, but only after the webhooks have run."""
    seen = make_view(*[node(f"n{number}", AFFECTED, "v1.36.2") for number in range(2_000)])
    inits = [QUICK] * 300
    anywhere, elsewhere = finished(*inits), finished(*inits, nodeSelector={"disk": "ssd"})
    for each in (anywhere, elsewhere):
        assert reasons(decide_pod(each, seen)) == ["prepare: Applied"] * 300
    assert cpu_ratio(lambda document: decide_pod(document, seen), elsewhere, anywhere) < 5
