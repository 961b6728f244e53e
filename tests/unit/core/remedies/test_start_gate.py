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
    init_containers,
    mutate_pod,
    namespace,
    node,
    patched,
    pod,
    policy,
    reasons,
    view,
)
from tests.support.kubelet_gate import (
    GATE,
    HOST_IP,
    QUICK,
    init_container_names,
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


def test_target_that_is_listed_twice_is_awaited_once() -> None:
    (gate,) = init_containers(mutate_pod(pod(), make_view(AGENT, AGENT)))
    assert gate["args"].count("--tcp") == 1


def test_gate_has_a_minimum_lifetime_on_affected_nodes() -> None:
    (gate,) = init_containers(mutate_pod(pod(), make_view(nodes=(node(),))))
    assert gate["command"] == SETTLED


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


MODE = "istio.io/dataplane-mode"
TARGETS: tuple[Json, ...] = ({"http": "http://a/"}, {"dns": "a"})


@pytest.mark.parametrize(
    ("labels", "own", "spec", "targets", "expected"),
    [
        ({MODE: "ambient"}, {}, {}, (AGENT,), "MeshTraffic"),
        ({}, {MODE: "ambient"}, {}, (AGENT,), "MeshTraffic"),
        ({}, {MODE: "ambient"}, {}, TARGETS, "Applied"),
        ({MODE: "ambient"}, {MODE: "none"}, {}, (AGENT,), "Applied"),
        ({MODE: "ambient"}, {MODE: "sidecar"}, {}, (AGENT,), "MeshTraffic"),
        ({MODE: "ambient"}, {}, {"hostNetwork": True}, (AGENT,), "Applied"),
        (
            {MODE: "ambient"},
            {},
            {"containers": [container("istio-proxy", "/p")]},
            (AGENT,),
            "Applied",
        ),
    ],
)
def test_connection_to_the_proxy_of_the_ambient_mode_says_nothing(
    labels: Json, own: Json, spec: Json, targets: tuple[Json, ...], expected: str
) -> None:
    gated = policy(remedies={"startGate": {"waitFor": [*targets]}, "kubeletGate": {}})
    look = view(gated, namespaces=[namespace("ci", labels)], nodes=[MODERN])
    assert reasons(decide_pod(pod(labels=own, **spec), look)) == [expected, "Applied"]


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
