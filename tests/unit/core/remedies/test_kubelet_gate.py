from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    IMAGE,
    MODERN,
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
    HOST_IP,
    QUICK,
    SETTLED,
    init_container_names,
    init_containers,
    make_view,
    sidecar,
)
from tests.support.patches import changes
from webhook.core.admission.decider import OperatorSettings

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


def test_gate_has_the_timeout_of_the_policy() -> None:
    (gate,) = init_containers(mutate_pod(pod(), make_view(timeout="1500ms")))
    assert gate["args"] == ["wait-kubelet", "--timeout", "1500ms"]


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


@pytest.mark.parametrize(
    ("security", "non_root"), [(None, True), ({"runAsUser": 1000}, True), ({"runAsUser": 0}, None)]
)
def test_gate_runs_as_the_user_of_the_pod(security: Any, non_root: Any) -> None:
    (gate,) = init_containers(mutate_pod(pod(securityContext=security), make_view()))
    assert gate["securityContext"].get("runAsNonRoot") is non_root
    assert "runAsUser" not in gate["securityContext"]


def test_gate_in_a_root_pod_runs_as_the_first_containers_user() -> None:
    secured = container("main", "/x", securityContext={"runAsNonRoot": True, "runAsUser": 1000})
    (gate,) = init_containers(
        mutate_pod(pod(containers=[secured], securityContext={"runAsUser": 0}), make_view())
    )
    context = gate["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, 1000)


@pytest.mark.parametrize(
    ("init", "main", "expected"),
    [
        (None, None, "BestEffort"),
        ({}, {"limits": {"ephemeral-storage": "1Gi"}}, "BestEffort"),
        (EQUAL, EQUAL, "Guaranteed"),
        (None, EQUAL, "Burstable"),
        (EQUAL, None, "Burstable"),
        (EQUAL, {"requests": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_qos_class_of_the_pod_is_unchanged(init: Any, main: Any, expected: str) -> None:
    before = pod(
        container("a", "/a", resources=init),
        containers=[container("main", "/main", resources=main), container("side", resources=main)],
    )
    after = mutate_pod(before, make_view())
    assert qos(before) == qos(after) == expected
    assert init_containers(after)[-1].get("resources", {}) == (main or {})


def test_gate_requests_no_devices() -> None:
    main = container("main", resources={"limits": {"cpu": 1, "nvidia.com/gpu": 1}})
    gate = init_containers(mutate_pod(pod(QUICK, containers=[main]), make_view()))[-1]
    assert gate["resources"] == {"limits": {"cpu": 1}}


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
        # Once these have run, connections go to a proxy that has not started.
        (["istio-init"], [GATE, "istio-init"]),
        (["a", "istio-init"], ["a", GATE, "istio-init"]),
        (["istio-init", "+istio-proxy", "a"], [GATE, "istio-init", "+istio-proxy", "a"]),
        (["a", "linkerd-init", "b"], ["a", GATE, "linkerd-init", "b"]),
        (["kuma-init", "a"], [GATE, "kuma-init", "a"]),
        # Here connections go to the proxy from the beginning, and the proxy has started.
        (
            ["istio-validation", "+istio-proxy", "a"],
            ["istio-validation", "+istio-proxy", "a", GATE],
        ),
        (
            ["linkerd-network-validator", "+linkerd-proxy"],
            ["linkerd-network-validator", "+linkerd-proxy", GATE],
        ),
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


@pytest.mark.parametrize("name", ["istio-validation", "linkerd-network-validator"])
def test_gate_is_skipped_if_the_mesh_blocks_init_containers(name: str) -> None:
    before = pod(container(name, "/x"), containers=[container("main"), container("istio-proxy")])
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["MeshTraffic"]
    assert changes(decision) == []
    assert len(decision.warnings) == 1


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


def test_gate_is_skipped_without_a_helper_image() -> None:
    decision = decide_pod(pod(), make_view(), settings=OperatorSettings())
    assert reasons(decision) == ["HelperImageMissing"]
    assert changes(decision) == []


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
