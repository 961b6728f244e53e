"""Tests of kubeletGate and startGate, alone and together. test_service_mesh has them in a mesh."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    IMAGE,
    LINGER,
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
from tests.support.gates import (
    AGENT,
    GATE,
    HELPER,
    HOST_IP,
    QUICK,
    SETTLED,
    START,
    init_container_names,
    kubelet_view,
    sidecar,
    start_view,
)
from tests.support.patches import changes
from webhook.core.admission.decider import OperatorSettings
from webhook.core.admission.summary import summary_of
from webhook.core.defects.versions import Version
from webhook.core.policy.snapshot import Snapshot

GATES = {GATE: kubelet_view(MODERN), START: start_view()}
"""For each gate by its name: a cluster with its remedy alone."""
BESIDE: list[Json] = [{}, {"kubeletGate": {}}]
BOTH = start_view(beside={"kubeletGate": {}})

# The gates' container.

TARGETS: list[Json] = [
    {"dns": "sts.example.com"},
    AGENT,
    {"http": "http://169.254.169.254/"},
    AGENT,
]


@pytest.mark.parametrize("fields", [{}, {"initContainers": None}, {"initContainers": []}])
@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (
            kubelet_view(MODERN),
            {
                "name": GATE,
                "command": ["/linger"],
                "args": ["wait-kubelet", "--timeout", "30s"],
                "env": [HOST_IP],
            },
        ),
        (
            start_view(*TARGETS, timeout="1500ms"),
            {
                "name": START,
                "command": ["/linger", "wait"],
                "args": [
                    *("--timeout", "1500ms", "--dns", "sts.example.com"),
                    *("--tcp", "169.254.170.23:80", "--http", "http://169.254.169.254/"),
                ],
            },
        ),
        (
            BOTH,
            {
                "name": GATE,
                "command": ["/linger", "wait"],
                "args": [
                    *("--timeout", "15s", "--tcp", "169.254.170.23:80"),
                    *("--kubelet", "30s"),
                ],
                "env": [HOST_IP],
            },
        ),
    ],
    ids=["kubeletGate", "startGate", "both"],
)
def test_gate_runs_the_helper_and_passes_pod_security_restricted(
    seen: Snapshot, expected: Json, fields: Json
) -> None:
    before = pod(**fields)
    decision = decide_pod(before, seen)
    assert {*reasons(decision)} == {"Applied"}
    after = patched(before, decision)
    assert {*reasons(decide_pod(after, seen))} == {"AlreadySettled"}
    assert after["metadata"].pop("annotations")["podsettle.dev/settled"] == "1/1/0/0"
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
    }
    made = {"image": IMAGE, "imagePullPolicy": "IfNotPresent", "securityContext": security}
    assert after["spec"].pop("initContainers") == [made | expected]
    before["spec"].pop("initContainers", None)
    assert after == before


@pytest.mark.parametrize(
    ("nodes", "command"),
    [
        ([node("n", "cri-o://1.33.12")], SETTLED),
        ([node("n", "cri-o://1.33.13")], ["/linger"]),
        ([node("n", "cri-o://1.33.13"), node("m", "cri-o://1.33.12")], SETTLED),
        ([], SETTLED),
    ],
)
def test_gate_has_a_minimum_lifetime_on_affected_nodes(
    nodes: list[Json], command: list[str]
) -> None:
    (gate,) = init_containers(mutate_pod(pod(), kubelet_view(*nodes)))
    assert gate["command"] == command
    (gate,) = init_containers(mutate_pod(pod(), start_view(nodes=(*nodes,))))
    assert gate["command"] == [*command, "wait"]


@pytest.mark.parametrize(("count", "copied"), [(20, 21), (200, 1)])
def test_gate_has_a_device_of_all_containers_unless_they_have_very_many(
    count: int, copied: int
) -> None:
    limits = {"cpu": "5m", **{f"example.com/device-{n}": "1" for n in range(count)}}
    main = container("main", resources={"limits": limits, "requests": {"memory": "5Mi"}})
    gate = init_containers(mutate_pod(pod(containers=[main]), kubelet_view()))[-1]
    assert len(gate["resources"]["limits"]) == copied
    assert gate["resources"]["requests"] == {"memory": "5Mi"}


# The gates' place.


def containers_of(names: list[str]) -> list[Json]:
    """Return init containers. A name after `+` is that of a sidecar."""
    return [sidecar(name[1:]) if name[0] == "+" else container(name, f"/{name}") for name in names]


# A sidecar starts before the gate, so its image is pulled while the gate waits.
@pytest.mark.parametrize("received", [["a"], ["a", "b"], ["a", "+side"], ["+side", "a"]])
def test_kubelet_gate_is_last(received: list[str]) -> None:
    before = pod(*containers_of(received))
    *others, gate = init_containers(mutate_pod(before, kubelet_view()))
    assert gate["name"] == GATE
    assert others == init_containers(before)


@pytest.mark.parametrize(
    "received",
    [
        ["a"],
        ["a", "+side"],
        ["istio-init", "a"],
        ["a", "linkerd-init"],
        ["istio-init", "+istio-proxy", "a"],
    ],
)
@pytest.mark.parametrize("beside", BESIDE, ids=["alone", "both"])
def test_start_gate_stands_before_all_other_init_containers(
    received: list[str], beside: Json
) -> None:
    before = pod(*containers_of(received))
    first, *others = init_containers(mutate_pod(before, start_view(beside=beside)))
    assert first["name"] == (GATE if beside else START)
    assert others == init_containers(before)


def test_kubelet_gate_moves_after_a_mesh_proxy_added_after_it() -> None:
    once = mutate_pod(pod(QUICK), kubelet_view())
    init_containers(once).extend([container("istio-validation"), sidecar("istio-proxy")])
    after = mutate_pod(once, kubelet_view())
    assert init_container_names(after) == ["prepare", "istio-validation", "istio-proxy", GATE]


def test_kubelet_gate_stands_behind_a_proxy_where_the_start_gate_is_skipped() -> None:
    before = pod(container("istio-validation", "/x"), sidecar("istio-proxy"))
    decision = decide_pod(before, BOTH)
    assert reasons(decision) == ["MeshTraffic", "Applied"]
    after = patched(before, decision)
    assert init_container_names(after)[-1] == GATE
    assert init_containers(after)[-1]["args"] == ["wait-kubelet", "--timeout", "30s"]


SLEEP: Json = {"postInitSleep": {"containers": ["*"]}}


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        ([], [HELPER, GATE]),
        ([QUICK], [HELPER, "prepare", GATE]),
        ([QUICK, container("istio-init")], [HELPER, "prepare", GATE, "istio-init"]),
        ([container("istio-init"), QUICK], [HELPER, GATE, "istio-init", "prepare"]),
    ],
)
def test_gate_is_never_wrapped(received: list[Json], expected: list[str]) -> None:
    look = kubelet_view(node(), beside=SLEEP)
    once = mutate_pod(pod(*received, restartPolicy="Never"), look)
    assert init_container_names(once) == expected
    assert next(c for c in init_containers(once) if c["name"] == GATE)["command"] == SETTLED


@pytest.mark.parametrize(
    "between",
    [
        ["early", HELPER, "prepare", GATE],
        [HELPER, "prepare", GATE, "late"],
        ["istio-init", HELPER, "prepare", GATE],
        ["early", "istio-init", HELPER, "prepare", GATE],
        ["early", HELPER, "istio-init", "prepare", GATE],
        [GATE, "early", HELPER, "prepare"],
        ["istio-init", "early", GATE, HELPER, "prepare"],
        ["early", "istio-init", GATE, HELPER, "prepare"],
        ["istio-validation", GATE, "istio-proxy", "early", HELPER, "prepare"],
    ],
)
def test_gate_and_helper_move_independently(between: list[str]) -> None:
    look = kubelet_view(node(), beside=SLEEP)
    once = mutate_pod(pod(QUICK), look)
    known = {c["name"]: c for c in init_containers(once)}
    others: Json = {"istio-proxy": sidecar("istio-proxy")}
    before: Json = {**once, "spec": {**once["spec"]}}
    before["spec"]["initContainers"] = [
        known.get(name) or others.get(name) or container(name, f"/{name}") for name in between
    ]
    after = mutate_pod(before, look)
    order = init_container_names(after)
    theirs = [name for name in between if name not in (GATE, HELPER)]
    assert [name for name in order if name not in (GATE, HELPER)] == theirs
    wrapped = [
        c["name"] for c in init_containers(after) if (c.get("command") or [""])[0] == LINGER[0]
    ]
    assert wrapped
    assert all(order.index(HELPER) < order.index(name) for name in wrapped)
    if "istio-init" in order:
        assert order.index(GATE) < order.index("istio-init")
    if "istio-proxy" in order:
        assert order.index(GATE) > order.index("istio-proxy")
    for name in (GATE, HELPER):
        assert next(c for c in init_containers(after) if c["name"] == name) == known[name]


# Pods that get no gate.


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"tolerations": [{"operator": "Exists"}]}, "SystemPod"),
        ({"tolerations": [{"key": "", "operator": "Exists", "effect": ""}]}, "SystemPod"),
        ({"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}, "SystemPod"),
        ({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}, "Applied"),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, "Applied"),
        ({"tolerations": [{"key": "gpu", "value": "a"}]}, "Applied"),
        ({"tolerations": None}, "Applied"),
        ({"priorityClassName": "system-node-critical"}, "SystemPod"),
        ({"priorityClassName": "system-cluster-critical"}, "Applied"),
        ({"priorityClassName": "high"}, "Applied"),
        ({"hostNetwork": True}, "Applied"),
        ({"os": {"name": "windows"}}, "WindowsPod"),
        ({"nodeSelector": {"kubernetes.io/os": "windows"}}, "WindowsPod"),
    ],
)
def test_pod_that_a_node_needs_early_gets_no_gate(spec: Json, reason: str) -> None:
    for seen in GATES.values():
        decision = decide_pod(pod(**spec), seen)
        assert reasons(decision) == [reason]
        assert bool(decision.operations) is (reason == "Applied")


@pytest.mark.parametrize(
    ("kind", "reason"), [("DaemonSet", "SystemPod"), ("Job", "Applied"), (None, "Applied")]
)
def test_daemon_set_pod_gets_no_gate(kind: str | None, reason: str) -> None:
    before = pod()
    before["metadata"]["ownerReferences"] = [{"kind": kind}] if kind else None
    assert reasons(decide_pod(before, kubelet_view())) == [reason]


def test_pod_on_fargate_gets_no_gate_and_keeps_the_one_that_it_has() -> None:
    label = {"eks.amazonaws.com/fargate-profile": "fp-default"}
    decision = decide_pod(pod(labels=label), kubelet_view())
    assert reasons(decision) == ["NotApplicable"]
    assert decision.operations == ()
    gated = mutate_pod(pod(labels={}), kubelet_view())
    # The webhook of EKS may add the label after podsettle's first call.
    gated["metadata"]["labels"] = label
    assert reasons(decide_pod(gated, kubelet_view())) == ["AlreadySettled"]


@pytest.mark.parametrize("namespace", ["kube-system", "openshift-etcd"])
@pytest.mark.parametrize(
    ("host_network", "reason"), [(True, "SystemPod"), (False, "Applied"), (None, "Applied")]
)
def test_host_network_pod_in_a_system_namespace_gets_no_gate(
    namespace: str, host_network: bool | None, reason: str
) -> None:
    named = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    look = view(policy(remedies={"kubeletGate": {}}, namespaceSelector=named))
    decision = decide_pod(pod(hostNetwork=host_network), look, namespace=namespace)
    assert reasons(decision) == [reason]


@pytest.mark.parametrize("name", GATES)
def test_gate_is_skipped_if_its_name_is_taken(name: str) -> None:
    for before in (
        pod(container(name, "/something")),
        pod(container(name)),
        pod(containers=[container(name, "/linger")]),
        pod(container(name, "/linger"), container(name, "/linger", "x"), sidecar("a")),
    ):
        decision = decide_pod(before, GATES[name])
        assert reasons(decision) == ["NameConflict"], before
        assert changes(decision) == []


MODE = "istio.io/dataplane-mode"
PROXY = [container("istio-proxy", "/p")]
OTHER_TARGETS: list[Json] = [{"http": "http://a/"}, {"dns": "a"}]


@pytest.mark.parametrize(
    ("labels", "own", "spec", "targets", "expected"),
    [
        ({MODE: "ambient"}, {}, {}, [AGENT], "MeshTraffic"),
        ({}, {MODE: "ambient"}, {}, [AGENT], "MeshTraffic"),
        ({}, {MODE: "ambient"}, {}, OTHER_TARGETS, "Applied"),
        ({MODE: "ambient"}, {MODE: "none"}, {}, [AGENT], "Applied"),
        ({MODE: "ambient"}, {MODE: "sidecar"}, {}, [AGENT], "MeshTraffic"),
        ({MODE: "ambient"}, {}, {"hostNetwork": True}, [AGENT], "Applied"),
        ({MODE: "ambient"}, {}, {"containers": PROXY}, [AGENT], "Applied"),
    ],
)
def test_connection_to_the_proxy_of_the_ambient_mode_says_nothing(
    labels: Json, own: Json, spec: Json, targets: list[Json], expected: str
) -> None:
    gated = policy(remedies={"startGate": {"waitFor": targets}, "kubeletGate": {}})
    look = view(gated, namespaces=[namespace("ci", labels)], nodes=[MODERN])
    assert reasons(decide_pod(pod(labels=own, **spec), look)) == [expected, "Applied"]


@pytest.mark.parametrize(
    ("image", "stated", "reason"),
    [
        (None, None, "HelperImageMissing"),
        ("registry.example/linger:0.1.0", None, "HelperTooOld"),
        ("registry.example/linger:latest", None, "HelperTooOld"),
        ("registry.example/linger:latest", Version(0, 2, 0), "Applied"),
    ],
)
def test_start_gate_needs_a_helper_that_knows_the_command(
    image: str | None, stated: Version | None, reason: str
) -> None:
    options = OperatorSettings(SETTINGS.own_namespace, image, linger_version=stated)
    decision = decide_pod(pod(), start_view(), settings=options)
    assert reasons(decision) == [reason]
    assert bool(changes(decision)) is (reason == "Applied")


# Targets of pods.

ANNOTATION = "podsettle.dev/start-gate"


def annotated(text: str) -> Json:
    return pod(annotations={ANNOTATION: text})


def summary(document: Json) -> str:
    text: str = document["metadata"]["annotations"]["podsettle.dev/summary"]
    return text


@pytest.mark.parametrize(
    ("text", "args"),
    [
        (
            "mysql.prod:3306, http://config/healthz,169.254.170.23:80,sts.example.com",
            [
                *("--tcp", "mysql.prod:3306"),
                *("--http", "http://config/healthz"),
                *("--dns", "sts.example.com"),
            ],
        ),
        ("a:80" + " " * 4_088 + ",b:8", ["--tcp", "a:80", "--tcp", "b:8"]),
    ],
    ids=["every kind", "the longest"],
)
def test_targets_of_the_annotation_follow_those_of_the_policy(text: str, args: list[str]) -> None:
    (gate,) = init_containers(mutate_pod(annotated(text), start_view(podTargets=True)))
    assert gate["args"] == ["--timeout", "15s", "--tcp", AGENT["tcp"], *args]


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
    before, seen = annotated(text), start_view(podTargets=True)
    decision = decide_pod(before, seen)
    assert reasons(decision) == ["AnnotationIgnored", "Applied"]
    assert decision.outcomes[0].message.startswith(f"{ANNOTATION}: {message}")
    after = mutate_pod(before, seen)
    assert init_containers(after)[0]["args"] == ["--timeout", "15s", "--tcp", AGENT["tcp"]]
    assert summary(after) == (
        "The pod is held until 169.254.170.23:80 answers, for at most 15 s, by policy p;\n"
        "startGate was applied in part: AnnotationIgnored."
    )


@pytest.mark.parametrize("beside", BESIDE, ids=["alone", "both"])
def test_gate_moves_before_a_mesh_and_its_summary_counts_the_targets_of_the_annotation(
    beside: Json,
) -> None:
    look = start_view(podTargets=True, beside=beside)
    once = mutate_pod(annotated("a:80,b:80,169.254.170.23:80"), look)
    held = "The pod is held until 169.254.170.23:80 and 2 more answer, for at most 15 s"
    assert summary(once).startswith(held)
    before = summary(once)
    # A later webhook adds a mesh.
    init_containers(once).insert(0, container("istio-init"))
    after = mutate_pod(once, look)
    assert init_container_names(after) == [GATE if beside else START, "istio-init"]
    assert summary(after) == before


def test_annotation_is_ignored_unless_the_policy_allows_it() -> None:
    decision = decide_pod(annotated("mysql.prod:3306"), start_view())
    assert reasons(decision) == ["AnnotationIgnored", "Applied"]
    assert "the policy does not set podTargets" in decision.outcomes[0].message


# Gates that are older than the policy, as in a copy of a pod.

OLD = start_view({"tcp": "old.prod:3306"}, {"dns": "b"}, timeout="30s")
OLD_GATE = "held by its gate until old.prod:3306 and 1 more answer, for at most 30 s"


def test_summary_of_a_copy_names_the_targets_of_its_own_gate() -> None:
    copied = mutate_pod(pod(QUICK), OLD)
    decision = decide_pod(copied, start_view())
    assert reasons(decision) == ["AlreadySettled"]
    assert summary_of(decision.outcomes) == f"The pod is already {OLD_GATE}."
    # Another change to the pod writes the annotation again.
    now = start_view(nodes=(node(),), beside={"postInitSleep": {}})
    assert f"the pod is {OLD_GATE}, by policy p" in summary(mutate_pod(copied, now))


OF_A_CLIENT = "held by its gate"
KUBELET = "its node's kubelet has a serving certificate"


@pytest.mark.parametrize(
    ("gate", "args", "effect"),
    [
        (GATE, ["wait-kubelet", "--timeout", "30s"], f"held until {KUBELET}, for at most 30 s"),
        (
            GATE,
            ["wait-kubelet", "--timeout", "15s"],
            f"held by its gate until {KUBELET}, for at most 15 s",
        ),
        (GATE, ["wait-kubelet", "--timeout", "x"], OF_A_CLIENT),
        (GATE, ["wait-kubelet"], OF_A_CLIENT),
        (GATE, [], OF_A_CLIENT),
        (START, None, OF_A_CLIENT),
        (START, [], OF_A_CLIENT),
        (START, ["--timeout", "15s"], OF_A_CLIENT),
        (START, ["--timeout", "soon", "--dns", "a"], OF_A_CLIENT),
        (START, ["--dns", "a"], OF_A_CLIENT),
        (START, ["--timeout", "15s", "--dns", "a b\nforged"], OF_A_CLIENT),
        (START, ["--timeout", "15s", "--tcp", "x" * 10_000], OF_A_CLIENT),
        (START, ["--timeout"], OF_A_CLIENT),
    ],
)
def test_gate_of_a_copy_is_described_by_its_own_arguments(
    gate: str, args: Any, effect: str
) -> None:
    once = mutate_pod(pod(), GATES[gate])
    init_containers(once)[0]["args"] = args
    (outcome,) = decide_pod(once, GATES[gate]).outcomes
    assert (outcome.reason, outcome.effect) == ("AlreadySettled", effect)
