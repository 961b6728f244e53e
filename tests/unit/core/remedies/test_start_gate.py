"""Tests of the remedy startGate, alone and together with kubeletGate."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    IMAGE,
    MODERN,
    SETTINGS,
    Json,
    container,
    decide_pod,
    mutate_pod,
    node,
    patched,
    pod,
    policy,
    qos,
    reasons,
    view,
)
from tests.support.kubelet_gate import (
    EQUAL,
    GATE,
    HELPER,
    HOST_IP,
    QUICK,
    init_container_names,
    init_containers,
    sidecar,
)
from tests.support.patches import changes
from webhook.core.admission.decider import OperatorSettings
from webhook.core.admission.summary import summary_of
from webhook.core.defects.versions import Version
from webhook.core.policy.snapshot import Snapshot

START = "podsettle-start-gate"
AGENT = {"tcp": "169.254.170.23:80"}
ANNOTATION = "podsettle.dev/start-gate"
SETTLED = ["/linger", "--min-lifetime", "500ms", "--", "/linger", "wait"]


def make_view(
    *targets: Json, nodes: tuple[Json, ...] = (MODERN,), beside: Json | None = None, **settings: Any
) -> Snapshot:
    gate = {"waitFor": [*targets] or [AGENT], **settings}
    return view(policy(remedies={"startGate": gate, **(beside or {})}), nodes=nodes)


BOTH = make_view(beside={"kubeletGate": {}})


def annotated(text: str, *inits: Json) -> Json:
    document = pod(*inits)
    document["metadata"]["annotations"] = {ANNOTATION: text}
    return document


# The gate's container.


def test_gate_runs_the_helper_with_the_targets_in_their_order() -> None:
    targets: list[Json] = [{"dns": "sts.example.com"}, AGENT, {"http": "http://169.254.169.254/"}]
    after = mutate_pod(pod(), make_view(*targets, timeout="1500ms"))
    assert after["metadata"]["annotations"] == {
        "podsettle.dev/applied": "p/startGate",
        "podsettle.dev/settled": "1/1/0/0",
        "podsettle.dev/summary": "The pod is held until sts.example.com and 2 more answer, for at "
        "most 1500 ms, by policy p.",
    }
    assert init_containers(after) == [
        {
            "name": START,
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["/linger", "wait"],
            "args": [
                *("--timeout", "1500ms", "--dns", "sts.example.com"),
                *("--tcp", "169.254.170.23:80", "--http", "http://169.254.169.254/"),
            ],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
            },
        }
    ]


def test_gate_waits_15_seconds_by_default() -> None:
    (gate,) = init_containers(mutate_pod(pod(), make_view()))
    assert gate["args"] == ["--timeout", "15s", "--tcp", "169.254.170.23:80"]


def test_target_that_is_listed_twice_is_awaited_once() -> None:
    (gate,) = init_containers(mutate_pod(pod(), make_view(AGENT, AGENT)))
    assert gate["args"].count("--tcp") == 1


def test_gate_has_a_minimum_lifetime_on_affected_nodes() -> None:
    (gate,) = init_containers(mutate_pod(pod(), make_view(nodes=(node(),))))
    assert gate["command"] == SETTLED


@pytest.mark.parametrize("resources", [None, EQUAL, {"requests": {"cpu": "1"}}])
def test_gate_keeps_the_qos_class_of_the_pod(resources: Any) -> None:
    before = pod(containers=[container("main", "/main", resources=resources)])
    after = mutate_pod(before, make_view())
    assert qos(before) == qos(after)
    assert init_containers(after)[0].get("resources") == resources


# The gate's place.


@pytest.mark.parametrize(
    "received",
    [
        [],
        ["a"],
        ["a", "+side"],
        ["istio-init", "a"],
        ["a", "linkerd-init"],
        ["istio-init", "+istio-proxy", "a"],
    ],
)
@pytest.mark.parametrize("beside", [{}, {"kubeletGate": {}}], ids=["alone", "both"])
def test_gate_stands_before_all_other_init_containers(received: list[str], beside: Json) -> None:
    look = make_view(beside=beside)
    before = pod(
        *(sidecar(name[1:]) if name[0] == "+" else container(name, f"/{name}") for name in received)
    )
    after = mutate_pod(before, look)
    first, *others = init_containers(after)
    assert first["name"] == (GATE if beside else START)
    assert others == init_containers(before)
    assert decide_pod(after, look).operations == ()


@pytest.mark.parametrize("proxy", [sidecar("istio-proxy"), container("b")])
def test_gate_is_skipped_where_only_a_place_behind_a_proxy_is_possible(proxy: Json) -> None:
    before = pod(container("istio-validation", "/x"), proxy)
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["MeshTraffic"]
    assert changes(decision) == []
    assert len(decision.warnings) == 1


def test_kubelet_gate_stands_behind_a_proxy_where_the_start_gate_is_skipped() -> None:
    before = pod(container("istio-validation", "/x"), sidecar("istio-proxy"))
    decision = decide_pod(before, BOTH)
    assert reasons(decision) == ["MeshTraffic", "Applied"]
    after = patched(before, decision)
    assert init_container_names(after)[-1] == GATE
    assert init_containers(after)[-1]["args"] == ["wait-kubelet", "--timeout", "30s"]


@pytest.mark.parametrize("beside", [{}, {"kubeletGate": {}}], ids=["alone", "both"])
def test_gate_moves_before_a_mesh_container_that_is_added_before_it(beside: Json) -> None:
    look = make_view(beside=beside)
    once = mutate_pod(pod(QUICK), look)
    init_containers(once).insert(0, container("istio-init"))
    after = mutate_pod(once, look)
    gate = GATE if beside else START
    assert init_container_names(after) == [gate, "istio-init", "prepare"]
    assert decide_pod(after, look).operations == ()


def test_gate_behind_an_added_init_container_stays_there() -> None:
    once = mutate_pod(pod(QUICK), make_view())
    init_containers(once).insert(0, container("early"))
    assert reasons(decide_pod(once, make_view())) == ["AlreadySettled"]


def test_helper_is_delivered_beside_the_gate_and_the_gate_is_not_wrapped() -> None:
    look = make_view(nodes=(node(),), beside={"postInitSleep": {}})
    after = mutate_pod(pod(QUICK), look)
    assert init_container_names(after) == [HELPER, START, "prepare"]
    assert init_containers(after)[1]["command"] == SETTLED
    assert decide_pod(after, look).operations == ()


# Together with kubeletGate.


def test_one_container_waits_for_the_kubelet_and_the_targets() -> None:
    decision = decide_pod(pod(QUICK), BOTH)
    assert reasons(decision) == ["Applied", "Applied"]
    gate, _ = init_containers(patched(pod(QUICK), decision))
    assert gate["name"] == GATE
    assert gate["command"] == ["/linger", "wait"]
    assert gate["args"] == [
        *("--timeout", "15s", "--tcp", "169.254.170.23:80"),
        *("--kubelet", "30s"),
    ]
    assert gate["env"] == [HOST_IP]
    again = decide_pod(patched(pod(QUICK), decision), BOTH)
    assert reasons(again) == ["AlreadySettled", "AlreadySettled"]


def test_start_gate_is_added_to_a_pod_with_the_kubelet_gate_of_an_earlier_version() -> None:
    earlier = mutate_pod(pod(QUICK), view(policy(remedies={"kubeletGate": {}}), nodes=[MODERN]))
    after = mutate_pod(earlier, BOTH)
    assert init_container_names(after) == [START, "prepare", GATE]
    assert decide_pod(after, BOTH).operations == ()


def test_both_gates_move_before_a_mesh_container_that_is_added_before_them() -> None:
    earlier = mutate_pod(pod(QUICK), view(policy(remedies={"kubeletGate": {}}), nodes=[MODERN]))
    once = mutate_pod(earlier, BOTH)
    init_containers(once).insert(0, container("istio-init"))
    after = mutate_pod(once, BOTH)
    assert init_container_names(after) == [START, GATE, "istio-init", "prepare"]
    assert decide_pod(after, BOTH).operations == ()


def test_gate_that_an_earlier_version_has_wrapped_stays_as_it_is() -> None:
    once = mutate_pod(pod(QUICK), make_view())
    gate = init_containers(once)[0]
    gate["command"] = ["/podsettle/linger", "--sleep", "10ms", "--", *gate["command"]]
    assert reasons(decide_pod(once, make_view())) == ["AlreadySettled"]


def test_gate_that_an_earlier_version_has_wrapped_stays_behind_helper_and_mesh() -> None:
    once = mutate_pod(pod(QUICK), make_view(nodes=(node(),), beside={"postInitSleep": {}}))
    inits = init_containers(once)
    assert init_container_names(once) == [HELPER, START, "prepare"]
    inits[1]["command"] = ["/podsettle/linger", "--sleep", "10ms", "--", *inits[1]["command"]]
    inits.insert(0, container("istio-init"))
    after = mutate_pod(once, make_view())
    assert init_container_names(after) == ["istio-init", HELPER, START, "prepare"]


def test_kubelet_gate_with_a_taken_name_leaves_the_start_gate_alone() -> None:
    before = pod(containers=[container(GATE, "/theirs")])
    decision = decide_pod(before, BOTH)
    assert reasons(decision) == ["Applied", "NameConflict"]
    assert init_container_names(patched(before, decision)) == [START]


# Targets of pods.


def test_targets_of_the_annotation_follow_those_of_the_policy() -> None:
    text = "mysql.prod:3306, http://config/healthz,169.254.170.23:80,sts.example.com"
    (gate,) = init_containers(mutate_pod(annotated(text), make_view(podTargets=True)))
    assert gate["args"][4:] == [
        *("--tcp", "mysql.prod:3306"),
        *("--http", "http://config/healthz"),
        *("--dns", "sts.example.com"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not"),
        ("a:1,b:2,c:3,d:4,e:5", "it has more than 4 targets"),
        ("a:1,,b:2", "'' is not"),
        ("$(SECRET):80", "'$(SECRET):80' is not"),
        ("--timeout=2h", "'--timeout=2h' is not"),
        ("a:0", "'a:0' is not"),
        ("https://a/", "'https://a/' is not"),
        ("a b", "'a b' is not"),
        ("a:80\nlinger: all is well", r"'a:80\nlinger: all is well' is not"),
        ("a" * 255, f"'{'a' * 60}…' is not"),
        ("a:80," * 4_000, "it has more than 4,096 characters"),
        ("a:80" + " " * 4_089 + ",b:8", "it has more than 4,096 characters"),
    ],
)
def test_unusable_annotation_warns_and_the_targets_of_the_policy_count(
    text: str, message: str
) -> None:
    before = annotated(text)
    decision = decide_pod(before, make_view(podTargets=True))
    assert reasons(decision) == ["AnnotationIgnored", "Applied"]
    assert decision.outcomes[0].message.startswith(f"{ANNOTATION}: {message}")
    after = patched(before, decision)
    assert init_containers(after)[0]["args"] == ["--timeout", "15s", "--tcp", AGENT["tcp"]]
    assert after["metadata"]["annotations"]["podsettle.dev/summary"] == (
        "The pod is held until 169.254.170.23:80 answers, for at most 15 s, by policy p;\n"
        "startGate was applied in part: AnnotationIgnored."
    )
    assert decide_pod(after, make_view(podTargets=True)).operations == ()


def test_annotation_of_the_maximum_length_counts() -> None:
    text = "a:80" + " " * 4_088 + ",b:8"
    assert len(text) == 4_096
    (gate,) = init_containers(mutate_pod(annotated(text), make_view(podTargets=True)))
    assert gate["args"][4:] == ["--tcp", "a:80", "--tcp", "b:8"]


def summary(document: Json) -> str:
    text: str = document["metadata"]["annotations"]["podsettle.dev/summary"]
    return text


def behind_a_mesh(document: Json) -> Json:
    """Return a gated pod to which a later webhook has added a mesh."""
    init_containers(document).insert(0, container("istio-init"))
    return document


@pytest.mark.parametrize("beside", [{}, {"kubeletGate": {}}], ids=["alone", "both"])
def test_summary_counts_the_targets_of_the_annotation_also_when_the_gate_is_moved(
    beside: Json,
) -> None:
    look = make_view(podTargets=True, beside=beside)
    once = mutate_pod(annotated("a:80,b:80,169.254.170.23:80"), look)
    held = "The pod is held until 169.254.170.23:80 and 2 more answer, for at most 15 s"
    assert summary(once).startswith(held)
    before = summary(once)
    assert summary(mutate_pod(behind_a_mesh(once), look)) == before


def test_annotation_stays_reported_as_ignored_when_the_gate_is_moved() -> None:
    once = mutate_pod(annotated("a b"), make_view(podTargets=True))
    before = dict(once["metadata"]["annotations"])
    assert before["podsettle.dev/skipped"] == "startGate=AnnotationIgnored"
    after = mutate_pod(behind_a_mesh(once), make_view(podTargets=True))
    assert (
        after["metadata"]["annotations"].items()
        >= {key: before[key] for key in ("podsettle.dev/summary", "podsettle.dev/skipped")}.items()
    )


def test_annotation_is_ignored_unless_the_policy_allows_it() -> None:
    decision = decide_pod(annotated("mysql.prod:3306"), make_view())
    assert reasons(decision) == ["AnnotationIgnored", "Applied"]
    assert "the policy does not set podTargets" in decision.outcomes[0].message


# Gates that are older than the policy, as in a copy of a pod.

OLD = make_view({"tcp": "old.prod:3306"}, {"dns": "b"}, timeout="30s")
OLD_GATE = "held by its gate until old.prod:3306 and 1 more answer, for at most 30 s"


def test_summary_of_a_copy_names_the_targets_of_its_own_gate() -> None:
    copied = mutate_pod(pod(QUICK), OLD)
    decision = decide_pod(copied, make_view())
    assert reasons(decision) == ["AlreadySettled"]
    assert summary_of(decision.outcomes) == f"The pod is already {OLD_GATE}."
    # Another change to the pod writes the annotation again.
    now = make_view(nodes=(node(),), beside={"postInitSleep": {}})
    assert f"the pod is {OLD_GATE}, by policy p" in summary(mutate_pod(copied, now))


def test_summary_of_a_copy_whose_gate_is_moved_names_its_own_targets() -> None:
    moved = mutate_pod(behind_a_mesh(mutate_pod(pod(QUICK), OLD)), make_view())
    assert summary(moved).startswith(f"The pod is {OLD_GATE}, by policy p")


def test_summary_of_a_copy_with_one_container_for_both_gates_names_what_it_has() -> None:
    old = {"waitFor": [{"dns": "old"}], "timeout": "1s"}
    earlier = policy(remedies={"startGate": old, "kubeletGate": {"timeout": "7s"}})
    copied = mutate_pod(pod(QUICK), view(earlier, nodes=[MODERN]))
    decision = decide_pod(copied, BOTH)
    assert reasons(decision) == ["AlreadySettled", "AlreadySettled"]
    assert [outcome.effect for outcome in decision.outcomes] == [
        "held by its gate until old answers, for at most 1 s",
        "held by its gate until its node's kubelet has a serving certificate, for at most 7 s",
    ]


@pytest.mark.parametrize(
    "args",
    [
        None,
        [],
        ["--timeout", "15s"],
        ["--timeout", "soon", "--dns", "a"],
        ["--dns", "a"],
        ["--timeout", "15s", "--dns", "a b\nforged"],
        ["--timeout", "15s", "--tcp", "x" * 10_000],
        ["--timeout"],
    ],
)
def test_gate_whose_arguments_a_client_wrote_is_only_called_a_gate(args: Any) -> None:
    once = mutate_pod(pod(QUICK), OLD)
    init_containers(once)[0]["args"] = args
    (outcome,) = decide_pod(once, make_view()).outcomes
    assert (outcome.reason, outcome.effect) == ("AlreadySettled", "held by its gate")


@pytest.mark.parametrize("nodes", [(MODERN,), (node(),)], ids=["plain", "with a lifetime"])
def test_gate_of_the_policy_is_described_by_the_policy(nodes: tuple[Json, ...]) -> None:
    look = make_view({"tcp": "a:1"}, {"http": "http://b/"}, {"dns": "c"}, nodes=nodes)
    once = mutate_pod(pod(QUICK), look)
    (outcome,) = decide_pod(once, look).outcomes
    assert outcome.effect == "held until a:1 and 2 more answer, for at most 15 s"


# Pods that get no gate.


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tolerations": [{"operator": "Exists"}]}, "SystemPod"),
        ({"priorityClassName": "system-node-critical"}, "SystemPod"),
        ({"hostNetwork": True}, "Applied"),
        ({"containers": [container(START, "/linger")]}, "NameConflict"),
        ({"initContainers": [container(START, "/something")]}, "NameConflict"),
    ],
)
def test_pod_that_a_node_needs_or_that_uses_the_name_gets_no_gate(
    fields: Json, reason: str
) -> None:
    assert reasons(decide_pod(pod(**fields), make_view())) == [reason]


@pytest.mark.parametrize(
    ("image", "stated", "reason"),
    [
        (None, None, "HelperImageMissing"),
        ("registry.example/linger:0.1.0", None, "HelperTooOld"),
        ("registry.example/linger:latest", None, "HelperTooOld"),
        ("registry.example/linger:latest", Version(0, 2, 0), "Applied"),
    ],
)
def test_gate_needs_a_helper_that_knows_the_command(
    image: str | None, stated: Version | None, reason: str
) -> None:
    options = OperatorSettings(SETTINGS.own_namespace, image, linger_version=stated)
    decision = decide_pod(pod(), make_view(), settings=options)
    assert reasons(decision) == [reason]
    assert bool(changes(decision)) is (reason == "Applied")


def test_kubelet_gate_works_with_a_helper_that_is_too_old_for_the_start_gate() -> None:
    options = OperatorSettings(SETTINGS.own_namespace, "registry.example/linger:0.1.0")
    decision = decide_pod(pod(), BOTH, settings=options)
    assert reasons(decision) == ["HelperTooOld", "Applied"]
    (gate,) = init_containers(patched(pod(), decision))
    assert gate["args"][0] == "wait-kubelet"
