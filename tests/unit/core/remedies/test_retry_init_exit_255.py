from __future__ import annotations

from typing import Any

from tests.support.complexity import cpu_ratio
from tests.support.factories import (
    Json,
    container,
    decide_pod,
    node,
    patched,
    pod,
    policy,
    reasons,
    view,
)
from tests.support.patches import only_reason
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
    del after["metadata"]["annotations"]
    changed = after["spec"]["initContainers"][1]
    assert changed.pop("restartPolicy") == "Never"
    assert changed.pop("restartPolicyRules") == [RULE]
    assert after == before


# Containers that are restarted anyway, or must not be.


def test_pod_with_another_restart_policy_is_unchanged() -> None:
    cases: list[str | None] = ["OnFailure", "Always", None]
    for restarts in cases:
        decision = decide_pod(pod(QUICK, restartPolicy=restarts), make_view())
        assert reasons(decision) == ["prepare: AlreadySettled"]
        said = "the pod's restartPolicy restarts it after every failure"
        assert decision.outcomes[0].message == said
        assert decision.operations == ()


def rule(operator: str, *values: int, action: str = "Restart") -> Json:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}


def test_restart_settings_of_the_container_are_kept() -> None:
    cases: list[tuple[str | None, list[Json] | None, str]] = [
        ("Always", None, "NativeSidecar"),
        ("Always", [RULE], "NativeSidecar"),
        ("OnFailure", None, "AlreadySettled"),
        ("Never", None, "RestartPolicyPreset"),
        ("Never", [], "RestartPolicyPreset"),
        ("Never", [rule("In", 1)], "RestartPolicyPreset"),
        ("Never", [rule("In", 1, 255)], "AlreadySettled"),
        ("Never", [rule("NotIn", 1)], "AlreadySettled"),
        ("Never", [rule("NotIn", 255)], "RestartPolicyPreset"),
        ("Never", [rule("In", 1), RULE], "AlreadySettled"),
        # The first rule about the exit code decides.
        ("Never", [rule("In", 255, action="Fail"), RULE], "RestartPolicyPreset"),
        ("Never", [rule("In", 255, action="RestartAllContainers")], "AlreadySettled"),
        (None, [{"action": "Restart"}], "RestartPolicyPreset"),
        (None, [rule("Near", 255)], "RestartPolicyPreset"),
        (None, None, "Applied"),
        (None, [], "Applied"),
    ]
    for restarts, rules, reason in cases:
        before = finished(QUICK | {"restartPolicy": restarts, "restartPolicyRules": rules})
        found = only_reason(before, make_view())
        assert (restarts, rules, found) == (restarts, rules, f"prepare: {reason}")


# Versions of the server and the nodes.


def test_rule_needs_a_server_that_supports_it() -> None:
    cases: list[tuple[Version | None, str]] = [
        (Version(1, 33, 9), "ServerTooOld"),
        (Version(1, 34, 9), "ServerTooOld"),
        (Version(1, 35, 0, final=False), "ServerTooOld"),
        (None, "ServerTooOld"),
        (Version(1, 35), "Applied"),
        (Version(1, 37), "Applied"),
    ]
    for server, reason in cases:
        seen = make_view(server=server)
        assert (server, only_reason(finished(QUICK), seen)) == (server, f"prepare: {reason}")
        warnings = decide_pod(finished(QUICK), seen).warnings
        assert len(warnings) == (reason == "ServerTooOld")


def test_rule_needs_nodes_that_support_it() -> None:
    cases: list[tuple[list[Json], str, str]] = [
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
    ]  # fmt: skip
    for nodes, when, reason in cases:
        found = only_reason(finished(QUICK), make_view(*nodes, when=when))
        assert (nodes, when, found) == (nodes, when, f"prepare: {reason}")


NEEDS = "needs Kubernetes 1.35 or later; the API server"


def test_message_names_the_known_version_of_an_old_server() -> None:
    cases: list[tuple[Version | None, list[Json], str]] = [
        (Version(1, 34, 2), [], f"{NEEDS} is Kubernetes 1.34.2"),
        (None, [node("a", AFFECTED, "v1.34.2")], "the newest kubelet is 1.34.2"),
        (None, [], f"{NEEDS}'s version is unknown"),
    ]
    for server, nodes, message in cases:
        (outcome,) = decide_pod(finished(QUICK), make_view(*nodes, server=server)).outcomes
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
