"""Tests of kubeletGate and startGate, alone and together. test_service_mesh has them in a mesh."""

from __future__ import annotations

from itertools import product

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
from tests.support.patches import only_reason
from webhook.core.admission.decider import OperatorSettings
from webhook.core.admission.summary import summary_of
from webhook.core.defects.versions import Version
from webhook.core.policy.snapshot import Snapshot

GATES = {GATE: kubelet_view(MODERN), START: start_view()}
"""For each gate by its name: a cluster with its remedy alone."""
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
    ("seen", "name", "command", "args"),
    [
        (kubelet_view(MODERN), GATE, "/linger", "wait-kubelet --timeout 30s"),
        (
            start_view(*TARGETS, timeout="1500ms"),
            START,
            "/linger wait",
            "--timeout 1500ms --dns sts.example.com --tcp 169.254.170.23:80 "
            "--http http://169.254.169.254/",
        ),
        (BOTH, GATE, "/linger wait", "--timeout 15s --tcp 169.254.170.23:80 --kubelet 30s"),
    ],
    ids=["kubeletGate", "startGate", "both"],
)
def test_gate_runs_the_helper_and_passes_pod_security_restricted(
    seen: Snapshot, name: str, command: str, args: str, fields: Json
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
    (made,) = after["spec"].pop("initContainers")
    assert made == {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": security,
        "command": command.split(),
        "args": args.split(),
        **({"env": [HOST_IP]} if name == GATE else {}),
    }
    before["spec"].pop("initContainers", None)
    assert after == before


def test_gate_has_a_minimum_lifetime_on_affected_nodes() -> None:
    affected, cured = node("n", "cri-o://1.33.12"), node("m", "cri-o://1.33.13")
    for nodes in ([affected], [cured], [cured, affected], []):
        command = ["/linger"] if nodes == [cured] else SETTLED
        (gate,) = init_containers(mutate_pod(pod(), kubelet_view(*nodes)))
        assert gate["command"] == command
        (gate,) = init_containers(mutate_pod(pod(), start_view(nodes=(*nodes,))))
        assert gate["command"] == [*command, "wait"]


def test_gate_has_a_device_of_all_containers_unless_they_have_very_many() -> None:
    for count, copied in ((20, 21), (200, 1)):
        limits = {"cpu": "5m", **{f"example.com/device-{n}": "1" for n in range(count)}}
        main = container("main", resources={"limits": limits, "requests": {"memory": "5Mi"}})
        gate = init_containers(mutate_pod(pod(containers=[main]), kubelet_view()))[-1]
        assert len(gate["resources"]["limits"]) == copied
        assert gate["resources"]["requests"] == {"memory": "5Mi"}


# The gates' place.


def containers_of(names: str) -> list[Json]:
    """Return init containers. A name after `+` is that of a sidecar."""
    return [
        sidecar(name[1:]) if name[0] == "+" else container(name, f"/{name}")
        for name in names.split()
    ]


def test_kubelet_gate_is_last_and_the_start_gate_is_first() -> None:
    # A sidecar starts before the gate, so its image is pulled while the gate waits.
    for received in ("a", "a b", "a +side", "+side a"):
        before = pod(*containers_of(received))
        *others, gate = init_containers(mutate_pod(before, kubelet_view()))
        assert (gate["name"], others) == (GATE, init_containers(before))
    meshes = ("istio-init a", "a linkerd-init", "istio-init +istio-proxy a")
    for received, name in product(("a", "a +side", *meshes), (START, GATE)):
        before = pod(*containers_of(received))
        beside: Json = {} if name == START else {"kubeletGate": {}}
        gate, *others = init_containers(mutate_pod(before, start_view(beside=beside)))
        assert (gate["name"], others) == (name, init_containers(before))


def test_kubelet_gate_stands_behind_a_mesh_proxy() -> None:
    mesh = containers_of("istio-validation +istio-proxy")
    once = mutate_pod(pod(QUICK), kubelet_view())
    init_containers(once).extend(mesh)
    after = mutate_pod(once, kubelet_view())
    assert init_container_names(after) == ["prepare", "istio-validation", "istio-proxy", GATE]
    decision = decide_pod(pod(*mesh), BOTH)
    assert reasons(decision) == ["MeshTraffic", "Applied"]
    gate = init_containers(patched(pod(*mesh), decision))[-1]
    assert (gate["name"], gate["args"]) == (GATE, ["wait-kubelet", "--timeout", "30s"])


SLEEP: Json = {"postInitSleep": {"containers": ["*"]}}


def test_gate_is_never_wrapped() -> None:
    for received, expected in (
        ("", [HELPER, GATE]),
        ("prepare", [HELPER, "prepare", GATE]),
        ("prepare istio-init", [HELPER, "prepare", GATE, "istio-init"]),
        ("istio-init prepare", [HELPER, GATE, "istio-init", "prepare"]),
    ):
        before = pod(*containers_of(received), restartPolicy="Never")
        once = mutate_pod(before, kubelet_view(node(), beside=SLEEP))
        assert init_container_names(once) == expected
        assert next(c for c in init_containers(once) if c["name"] == GATE)["command"] == SETTLED


@pytest.mark.parametrize(
    "between",
    [
        f"early {HELPER} prepare {GATE}",
        f"{HELPER} prepare {GATE} late",
        f"istio-init {HELPER} prepare {GATE}",
        f"early istio-init {HELPER} prepare {GATE}",
        f"early {HELPER} istio-init prepare {GATE}",
        f"{GATE} early {HELPER} prepare",
        f"istio-init early {GATE} {HELPER} prepare",
        f"early istio-init {GATE} {HELPER} prepare",
        f"istio-validation {GATE} +istio-proxy early {HELPER} prepare",
    ],
)
def test_gate_and_helper_move_independently(between: str) -> None:
    look = kubelet_view(node(), beside=SLEEP)
    once = mutate_pod(pod(QUICK), look)
    known = {c["name"]: c for c in init_containers(once)}
    received = [known.get(each["name"], each) for each in containers_of(between)]
    before: Json = {**once, "spec": {**once["spec"], "initContainers": received}}
    found = {each["name"]: each for each in init_containers(mutate_pod(before, look))}
    order = [*found]
    theirs = [each["name"] for each in received if each["name"] not in (GATE, HELPER)]
    assert [name for name in order if name not in (GATE, HELPER)] == theirs
    wrapped = [n for n, each in found.items() if each.get("command", [""])[0] == LINGER[0]]
    assert wrapped
    assert all(order.index(HELPER) < order.index(name) for name in wrapped)
    if "istio-init" in order:
        assert order.index(GATE) < order.index("istio-init")
    if "istio-proxy" in order:
        assert order.index(GATE) > order.index("istio-proxy")
    assert (found[GATE], found[HELPER]) == (known[GATE], known[HELPER])


# Pods that get no gate.


def owned(kind: str) -> Json:
    document = pod()
    document["metadata"]["ownerReferences"] = [{"kind": kind}]
    return document


def test_pod_that_a_node_needs_early_gets_no_gate() -> None:
    cases: list[tuple[Json, str]] = [
        (pod(tolerations=[{"operator": "Exists"}]), "SystemPod"),
        (pod(tolerations=[{"key": "", "operator": "Exists", "effect": ""}]), "SystemPod"),
        (pod(tolerations=[{"operator": "Exists", "effect": "NoSchedule"}]), "SystemPod"),
        (pod(tolerations=[{"operator": "Exists", "effect": "NoExecute"}]), "Applied"),
        (pod(tolerations=[{"key": "gpu", "operator": "Exists"}]), "Applied"),
        (pod(tolerations=[{"key": "gpu", "value": "a"}]), "Applied"),
        (pod(tolerations=None), "Applied"),
        (pod(priorityClassName="system-node-critical"), "SystemPod"),
        (pod(priorityClassName="system-cluster-critical"), "Applied"),
        (pod(priorityClassName="high"), "Applied"),
        (pod(hostNetwork=True), "Applied"),
        (pod(os={"name": "windows"}), "WindowsPod"),
        (pod(nodeSelector={"kubernetes.io/os": "windows"}), "WindowsPod"),
        (owned("DaemonSet"), "SystemPod"),
        (owned("Job"), "Applied"),
    ]
    for seen in GATES.values():
        assert [(each, only_reason(each, seen)) for each, _ in cases] == cases


def test_pod_on_fargate_gets_no_gate_and_keeps_the_one_that_it_has() -> None:
    label = {"eks.amazonaws.com/fargate-profile": "fp-default"}
    assert only_reason(pod(labels=label), kubelet_view()) == "NotApplicable"
    gated = mutate_pod(pod(labels={}), kubelet_view())
    # The webhook of EKS may add the label after podsettle's first call.
    gated["metadata"]["labels"] = label
    assert only_reason(gated, kubelet_view()) == "AlreadySettled"


@pytest.mark.parametrize("namespace", ["kube-system", "openshift-etcd"])
def test_host_network_pod_in_a_system_namespace_gets_no_gate(namespace: str) -> None:
    named = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    look = view(policy(remedies={"kubeletGate": {}}, namespaceSelector=named))
    for value, expected in ((True, "SystemPod"), (False, "Applied"), (None, "Applied")):
        assert only_reason(pod(hostNetwork=value), look, namespace=namespace) == expected


@pytest.mark.parametrize("name", GATES)
def test_gate_is_skipped_if_its_name_is_taken(name: str) -> None:
    for before in (
        pod(container(name, "/something")),
        pod(container(name)),
        pod(containers=[container(name, "/linger")]),
        pod(container(name, "/linger"), container(name, "/linger", "x"), sidecar("a")),
    ):
        assert only_reason(before, GATES[name]) == "NameConflict"


MODE = "istio.io/dataplane-mode"
PROXY = [container("istio-proxy", "/p")]
OTHER_TARGETS: list[Json] = [{"http": "http://a/"}, {"dns": "a"}]


def test_connection_to_ztunnel_says_nothing() -> None:
    cases: list[tuple[Json, Json, Json, list[Json], str]] = [
        ({MODE: "ambient"}, {}, {}, [AGENT], "MeshTraffic"),
        ({}, {MODE: "ambient"}, {}, [AGENT], "MeshTraffic"),
        ({}, {MODE: "ambient"}, {}, OTHER_TARGETS, "Applied"),
        ({MODE: "ambient"}, {MODE: "none"}, {}, [AGENT], "Applied"),
        ({MODE: "ambient"}, {MODE: "sidecar"}, {}, [AGENT], "MeshTraffic"),
        ({"io.cilium/mtls-enabled": "true"}, {}, {}, [AGENT], "MeshTraffic"),
        ({"io.cilium/mtls-enabled": "false"}, {}, {}, [AGENT], "Applied"),
        ({MODE: "ambient"}, {}, {"hostNetwork": True}, [AGENT], "Applied"),
        ({MODE: "ambient"}, {}, {"containers": PROXY}, [AGENT], "Applied"),
    ]
    for labels, own, spec, targets, expected in cases:
        gated = policy(remedies={"startGate": {"waitFor": targets}, "kubeletGate": {}})
        look = view(gated, namespaces=[namespace("ci", labels)], nodes=[MODERN])
        found = reasons(decide_pod(pod(labels=own, **spec), look))
        assert (labels, own, spec, found) == (labels, own, spec, [expected, "Applied"])


def test_start_gate_needs_a_helper_that_knows_the_command() -> None:
    for image, stated, reason in (
        (None, None, "HelperImageMissing"),
        ("registry.example/linger:0.1.0", None, "HelperTooOld"),
        ("registry.example/linger:latest", None, "HelperTooOld"),
        ("registry.example/linger:latest", Version(0, 2, 0), "Applied"),
    ):
        options = OperatorSettings(SETTINGS.own_namespace, image, linger_version=stated)
        assert only_reason(pod(), start_view(), settings=options) == reason


# Targets of pods.

ANNOTATION = "podsettle.dev/start-gate"


def annotated(text: str) -> Json:
    return pod(annotations={ANNOTATION: text})


def summary(document: Json) -> str:
    text: str = document["metadata"]["annotations"]["podsettle.dev/summary"]
    return text


def test_targets_of_the_annotation_follow_those_of_the_policy() -> None:
    every = "mysql.prod:3306, http://config/healthz,169.254.170.23:80,sts.example.com"
    longest = "a:80" + " " * 4_088 + ",b:8"
    for text, args in (
        (every, "--tcp mysql.prod:3306 --http http://config/healthz --dns sts.example.com"),
        (longest, "--tcp a:80 --tcp b:8"),
    ):
        (gate,) = init_containers(mutate_pod(annotated(text), start_view(podTargets=True)))
        assert gate["args"] == ["--timeout", "15s", "--tcp", AGENT["tcp"], *args.split()]


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


@pytest.mark.parametrize("beside", [{}, {"kubeletGate": {}}], ids=["alone", "both"])
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


def test_summary_of_a_copy_names_the_targets_of_its_own_gate() -> None:
    old = start_view({"tcp": "old.prod:3306"}, {"dns": "b"}, timeout="30s")
    held = "held by its gate until old.prod:3306 and 1 more answer, for at most 30 s"
    copied = mutate_pod(pod(QUICK), old)
    decision = decide_pod(copied, start_view())
    assert reasons(decision) == ["AlreadySettled"]
    assert summary_of(decision.outcomes) == f"The pod is already {held}."
    # Another change to the pod writes the annotation again.
    now = start_view(nodes=(node(),), beside={"postInitSleep": {}})
    assert f"the pod is {held}, by policy p" in summary(mutate_pod(copied, now))


def test_gate_of_a_copy_is_described_by_its_own_arguments() -> None:
    of_a_client, certificate = "held by its gate", "its node's kubelet has a serving certificate"
    cases: list[tuple[str, list[str] | None, str]] = [
        (GATE, ["wait-kubelet", "--timeout", "30s"], f"held until {certificate}, for at most 30 s"),
        (
            GATE,
            ["wait-kubelet", "--timeout", "15s"],
            f"{of_a_client} until {certificate}, for at most 15 s",
        ),
        (GATE, ["wait-kubelet", "--timeout", "x"], of_a_client),
        (GATE, ["wait-kubelet"], of_a_client),
        (GATE, [], of_a_client),
        (START, None, of_a_client),
        (START, [], of_a_client),
        (START, ["--timeout", "15s"], of_a_client),
        (START, ["--timeout", "soon", "--dns", "a"], of_a_client),
        (START, ["--dns", "a"], of_a_client),
        (START, ["--timeout", "15s", "--dns", "a b\nforged"], of_a_client),
        (START, ["--timeout", "15s", "--tcp", "x" * 10_000], of_a_client),
        (START, ["--timeout"], of_a_client),
    ]
    for name, args, effect in cases:
        once = mutate_pod(pod(), GATES[name])
        init_containers(once)[0]["args"] = args
        (outcome,) = decide_pod(once, GATES[name]).outcomes
        assert (outcome.reason, outcome.effect) == ("AlreadySettled", effect), args
