"""Pods as the injectors of service meshes leave them: the place of gates, and what is wrapped.

The shapes are those of the injectors' sources: istio `injection-template.yaml`, linkerd2
`charts/partials`, kuma `injector.go`, consul-k8s `container_init.go`, osm `pkg/injector`, and
aws-app-mesh-controller-for-k8s `pkg/inject`.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.factories import (
    Json,
    container,
    decide_pod,
    init_containers,
    mutate_pod,
    node,
    pod,
    policy,
    reasons,
    view,
)
from tests.support.gates import (
    GATE,
    HELPER,
    QUICK,
    init_container_names,
    kubelet_view,
    sidecar,
    start_view,
)

START_VIEW = start_view()
CONSUL_PLUGIN = {"consul.hashicorp.com/redirect-traffic-config": '{"ProxyUserID":"5995"}'}
APP_MESH_PLUGIN = {"appmesh.k8s.aws/proxyEgressPort": "15001"}
MULTUS = {"k8s.v1.cni.cncf.io/networks": "macvlan, v2-6-istio-cni"}


def adding(name: str, *capabilities: str, **fields: Any) -> Json:
    """Return an init container that adds capabilities, as one that redirects connections does."""
    added = {"capabilities": {"add": [*capabilities], "drop": ["ALL"]}, "runAsUser": 0}
    return container(name, "/redirect", securityContext=added, **fields)


REDIRECTED = {
    "istio": [adding("istio-init", "NET_ADMIN", "NET_RAW")],
    "istio, native sidecar with TPROXY": [
        adding("istio-init", "NET_ADMIN", "NET_RAW"),
        {**sidecar("istio-proxy"), **adding("istio-proxy", "NET_ADMIN", restartPolicy="Always")},
    ],
    "linkerd": [adding("linkerd-init", "NET_ADMIN", "NET_RAW")],
    "kuma": [adding("kuma-init", "NET_ADMIN", "NET_RAW")],
    "consul": [adding("consul-connect-inject-init", "NET_ADMIN")],
    "consul without a transparent proxy": [container("consul-connect-inject-init", "/bin/sh")],
    "consul, two services": [
        container("consul-connect-inject-init-web", "/bin/sh"),
        container("consul-connect-inject-init-web-admin", "/bin/sh"),
    ],
    "consul on OpenShift": [
        container(
            "consul-connect-inject-init",
            "/bin/sh",
            securityContext={"privileged": True, "capabilities": {"add": ["NET_ADMIN"]}},
        )
    ],
    "consul, v2": [adding("consul-mesh-init", "NET_ADMIN")],
    "app mesh": [adding("proxyinit", "NET_ADMIN")],
    "open service mesh": [adding("osm-init", "NET_ADMIN")],
    "a mesh without a name": [adding("setup", "NET_ADMIN")],
    "a sidecar that redirects": [adding("agent", "NET_ADMIN", restartPolicy="Always")],
}

BEHIND_PLUGIN: dict[str, tuple[Json, str]] = {
    "istio": (pod(container("istio-validation")), "istio-proxy"),
    "openshift service mesh 2": (pod(annotations=MULTUS), "istio-proxy"),
    "linkerd": (pod(container("linkerd-network-validator")), "linkerd-proxy"),
    "linkerd without its validator": (pod(), "linkerd-proxy"),
    "kuma": (pod(container("kuma-validation")), "kuma-sidecar"),
    "kuma without inbound redirection": (pod(), "kuma-sidecar"),
    "consul": (
        pod(container("consul-connect-inject-init", "/bin/sh"), annotations=CONSUL_PLUGIN),
        "consul-dataplane",
    ),
    "consul, v2": (
        pod(container("consul-mesh-init", "/bin/sh"), annotations=CONSUL_PLUGIN),
        "consul-dataplane",
    ),
    "app mesh": (pod(annotations=APP_MESH_PLUGIN), "envoy"),
    "app mesh, asked for": (pod(annotations={"appmesh.k8s.aws/appmeshCNI": "Enabled"}), "envoy"),
}
"""Pods behind a CNI plugin, without their proxy, and the name of the proxy."""
NATIVE = [case for case, (_, proxy) in BEHIND_PLUGIN.items() if proxy != "envoy"]


@pytest.mark.parametrize("case", REDIRECTED)
@pytest.mark.parametrize("own", [[], [QUICK]], ids=["alone", "behind another"])
def test_kubelet_gate_stands_directly_before_the_container_that_redirects(
    case: str, own: list[Json]
) -> None:
    theirs = REDIRECTED[case]
    after = mutate_pod(pod(*own, *theirs, container("last", "/last")), kubelet_view())
    expected = [*(each["name"] for each in own), GATE, *(each["name"] for each in theirs), "last"]
    assert init_container_names(after) == expected


@pytest.mark.parametrize("case", REDIRECTED)
def test_kubelet_gate_moves_before_a_mesh_that_is_added_later(case: str) -> None:
    once = mutate_pod(pod(QUICK), kubelet_view())
    init_containers(once)[:0] = REDIRECTED[case]
    after = mutate_pod(once, kubelet_view())
    assert init_container_names(after)[0] == GATE


def with_proxy(case: str, *, native: bool) -> Json:
    """Return a pod behind a CNI plugin, whose proxy is a native sidecar or a regular container."""
    document, proxy = BEHIND_PLUGIN[case]
    inits = [*init_containers(document), *([sidecar(proxy)] if native else [])]
    regular = [container("main", "/main"), *([] if native else [container(proxy)])]
    spec = {**document["spec"], "initContainers": inits, "containers": regular}
    return {**document, "spec": spec}


@pytest.mark.parametrize("case", BEHIND_PLUGIN)
@pytest.mark.parametrize("look", [kubelet_view(), START_VIEW], ids=["kubeletGate", "startGate"])
def test_no_gate_is_added_behind_a_plugin_whose_proxy_starts_later(case: str, look: Any) -> None:
    decision = decide_pod(with_proxy(case, native=False), look)
    assert reasons(decision) == ["MeshTraffic"]
    assert len(decision.warnings) == 1


@pytest.mark.parametrize("case", NATIVE)
def test_behind_a_plugin_only_the_kubelet_gate_has_a_place_after_a_native_proxy(case: str) -> None:
    document = with_proxy(case, native=True)
    assert reasons(decide_pod(document, START_VIEW)) == ["MeshTraffic"]
    after = mutate_pod(document, kubelet_view())
    assert init_container_names(after) == [*init_container_names(document), GATE]


def test_plugin_leaves_a_pod_with_the_init_container_of_its_mesh_alone() -> None:
    proxies = {"istio-init": "istio-proxy", "linkerd-init": "linkerd-proxy"}
    for name, proxy in {**proxies, "kuma-init": "kuma-sidecar"}.items():
        before = pod(container(name), containers=[container("main"), container(proxy)])
        assert init_container_names(mutate_pod(before, kubelet_view())) == [GATE, name]


SPELLINGS = st.sampled_from(["NET_ADMIN", "NET_RAW", "ALL"]).flatmap(
    lambda name: st.sampled_from([name, name.lower(), f"CAP_{name}", f"cap_{name.lower()}"])
)
OTHERS = st.lists(
    st.sampled_from(["CHOWN", "SYS_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "SYSLOG"]),
    max_size=3,
)


@given(st.text("abc-", min_size=1, max_size=8), SPELLINGS, OTHERS, OTHERS)
def test_capability_is_a_sign_in_any_spelling_and_place(
    name: str, sign: str, before: list[str], behind: list[str]
) -> None:
    document = pod(QUICK, adding(f"x{name}", *before, sign, *behind), container("last", "/last"))
    assert init_container_names(mutate_pod(document, kubelet_view())) == [
        *("prepare", GATE, f"x{name}", "last")
    ]


@given(st.text("abc-", min_size=1, max_size=8), OTHERS)
def test_other_capabilities_are_no_sign(name: str, added: list[str]) -> None:
    document = pod(adding(f"x{name}", *added), container("last", "/last"))
    assert init_container_names(mutate_pod(document, kubelet_view()))[-1] == GATE


def test_gate_stands_before_a_privileged_container_which_is_wrapped() -> None:
    sysctl = container("sysctl", "/bin/sysctl", securityContext={"privileged": True})
    look = kubelet_view(node(), beside={"postInitSleep": {}})
    after = mutate_pod(pod(sysctl), look)
    assert init_container_names(after) == [HELPER, GATE, "sysctl"]
    assert init_containers(after)[2]["command"][0] == "/podsettle/linger"


def test_gate_stands_behind_a_privileged_sidecar() -> None:
    docker = {**sidecar("dind"), "securityContext": {"privileged": True}}
    after = mutate_pod(pod(QUICK, docker), kubelet_view())
    assert init_container_names(after) == ["prepare", "dind", GATE]


def test_gate_of_a_client_that_adds_a_capability_does_not_move_before_itself() -> None:
    once = mutate_pod(pod(QUICK), kubelet_view())
    init_containers(once)[1]["securityContext"]["capabilities"] = {"add": ["NET_ADMIN"]}
    assert reasons(decide_pod(once, kubelet_view())) == ["AlreadySettled"]


INIT_CONTAINERS = [
    *(each for case, found in REDIRECTED.items() for each in found if "sidecar" not in case),
    *(each for document, _ in BEHIND_PLUGIN.values() for each in init_containers(document)),
]
OPEN_FILES: Json = {"openFiles": {"soft": 1024, "initContainers": ["*"], "containers": []}}


@pytest.mark.parametrize("remedies", [{"postInitSleep": {}}, OPEN_FILES], ids="-".join)
def test_init_container_of_a_mesh_is_never_wrapped(remedies: Json) -> None:
    look = view(policy(remedies=remedies), nodes=[node()])
    for theirs in INIT_CONTAINERS:
        before = pod({**theirs, "command": ["/bin/sh", "-c", "x"]}, containers=[container("main")])
        decision = decide_pod(before, look)
        assert reasons(decision) == [f"{theirs['name']}: MeshInitContainer"]
        assert decision.operations == ()
