"""Tests of kubeletGate: its container, its place, and pods that others have changed."""

from __future__ import annotations

import pytest

from tests.support.factories import (
    IMAGE,
    LINGER,
    MODERN,
    Json,
    container,
    decide_pod,
    init_containers,
    mutate_pod,
    node,
    patched,
    pod,
    policy,
    reasons,
    view,
)
from tests.support.kubelet_gate import (
    GATE,
    HELPER,
    HOST_IP,
    QUICK,
    SETTLED,
    init_container_names,
    make_view,
    sidecar,
)
from tests.support.patches import changes

# The gate's container.


@pytest.mark.parametrize("fields", [{}, {"initContainers": None}, {"initContainers": []}])
def test_gate_runs_the_helper_and_passes_pod_security_restricted(fields: Json) -> None:
    before = pod(**fields)
    decision = decide_pod(before, make_view(MODERN))
    assert reasons(decision) == ["Applied"]
    after = patched(before, decision)
    assert after["metadata"].pop("annotations") == {
        "podsettle.dev/applied": "p/kubeletGate",
        "podsettle.dev/settled": "1/1/0/0",
        "podsettle.dev/summary": "The pod is held until its node's kubelet has a serving "
        "certificate, for at most 30 s, by policy p.",
    }
    assert after["spec"].pop("initContainers") == [
        {
            "name": GATE,
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["/linger"],
            "args": ["wait-kubelet", "--timeout", "30s"],
            "env": [HOST_IP],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
            },
        }
    ]
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
    (gate,) = init_containers(mutate_pod(pod(), make_view(*nodes)))
    assert gate["command"] == command


@pytest.mark.parametrize(("count", "copied"), [(20, 21), (200, 1)])
def test_gate_has_a_device_of_all_containers_unless_they_have_very_many(
    count: int, copied: int
) -> None:
    limits = {"cpu": "5m", **{f"example.com/device-{n}": "1" for n in range(count)}}
    main = container("main", resources={"limits": limits, "requests": {"memory": "5Mi"}})
    gate = init_containers(mutate_pod(pod(containers=[main]), make_view()))[-1]
    assert len(gate["resources"]["limits"]) == copied
    assert gate["resources"]["requests"] == {"memory": "5Mi"}


# The gate's position.


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (["a"], ["a", GATE]),
        (["a", "b"], ["a", "b", GATE]),
        # The sidecar starts before the gate, so its image is pulled while the gate waits.
        (["a", "+side"], ["a", "+side", GATE]),
        (["+side", "a"], ["+side", "a", GATE]),
        (["istio-init", "+istio-proxy", "a"], [GATE, "istio-init", "+istio-proxy", "a"]),
    ],
)
def test_gate_is_last_or_before_the_mesh(received: list[str], expected: list[str]) -> None:
    def made(name: str) -> Json:
        return sidecar(name[1:]) if name.startswith("+") else container(name, f"/{name}")

    before = pod(*map(made, received))
    after = mutate_pod(before, make_view())
    assert init_container_names(after) == [name.removeprefix("+") for name in expected]
    assert [c for c in init_containers(after) if c["name"] != GATE] == init_containers(before)
    assert decide_pod(after, make_view()).operations == ()


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
    decision = decide_pod(pod(**spec), make_view())
    assert reasons(decision) == [reason]
    assert bool(decision.operations) is (reason == "Applied")


@pytest.mark.parametrize(
    ("kind", "reason"), [("DaemonSet", "SystemPod"), ("Job", "Applied"), (None, "Applied")]
)
def test_daemon_set_pod_gets_no_gate(kind: str | None, reason: str) -> None:
    before = pod()
    before["metadata"]["ownerReferences"] = [{"kind": kind}] if kind else None
    assert reasons(decide_pod(before, make_view())) == [reason]


def test_pod_on_fargate_gets_no_gate_and_keeps_the_one_that_it_has() -> None:
    label = {"eks.amazonaws.com/fargate-profile": "fp-default"}
    decision = decide_pod(pod(labels=label), make_view())
    assert reasons(decision) == ["NotApplicable"]
    assert decision.operations == ()
    gated = patched(pod(labels={}), decide_pod(pod(labels={}), make_view()))
    # The webhook of EKS may add the label after podsettle's first call.
    gated["metadata"]["labels"] = label
    assert reasons(decide_pod(gated, make_view())) == ["AlreadySettled"]


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


@pytest.mark.parametrize(
    "before",
    [
        pod(container(GATE, "/something")),
        pod(container(GATE)),
        pod(containers=[container(GATE, "/linger")]),
        pod(container(GATE, "/linger"), container(GATE, "/linger", "x"), sidecar("istio-proxy")),
    ],
    ids=["an init container", "one without a command", "a regular container", "twice"],
)
def test_gate_is_skipped_if_its_name_is_taken(before: Json) -> None:
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["NameConflict"]
    assert changes(decision) == []


def test_gate_moves_after_a_mesh_proxy_added_after_it() -> None:
    once = mutate_pod(pod(QUICK), make_view())
    init_containers(once).extend([container("istio-validation"), sidecar("istio-proxy")])
    after = mutate_pod(once, make_view())
    assert init_container_names(after) == ["prepare", "istio-validation", "istio-proxy", GATE]
    assert decide_pod(after, make_view()).operations == ()


@pytest.mark.parametrize(
    ("args", "effect"),
    [
        (["wait-kubelet", "--timeout", "30s"], "held until its node's kubelet has a serving "
         "certificate, for at most 30 s"),
        (["wait-kubelet", "--timeout", "15s"], "held by its gate until its node's kubelet has a "
         "serving certificate, for at most 15 s"),
        (["wait-kubelet", "--timeout", "x"], "held by its gate"),
        (["wait-kubelet"], "held by its gate"),
        ([], "held by its gate"),
    ],
)  # fmt: skip
def test_gate_of_a_copy_is_described_by_its_own_timeout(args: list[str], effect: str) -> None:
    once = mutate_pod(pod(QUICK), make_view())
    init_containers(once)[1]["args"] = args
    (outcome,) = decide_pod(once, make_view()).outcomes
    assert (outcome.reason, outcome.effect) == ("AlreadySettled", effect)


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
    look = make_view(node(), beside=SLEEP)
    once = mutate_pod(pod(*received, restartPolicy="Never"), look)
    assert init_container_names(once) == expected
    assert next(c for c in init_containers(once) if c["name"] == GATE)["command"] == SETTLED
    assert decide_pod(once, look).operations == ()


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
    look = make_view(node(), beside=SLEEP)
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
    assert decide_pod(after, look).operations == ()
