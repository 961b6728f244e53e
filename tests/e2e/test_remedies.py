"""Tests of all remedies on a real API server: it accepts each change exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.e2e_pods import (
    RESOURCES,
    RESTRICTED,
    UNTOUCHED,
    create,
    fresh,
    init_names,
    normal,
    simple_pod,
    wrappers,
)
from tests.support.factories import node
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.registered_webhook import podsettle_called_by
from tests.support.reviews import PODS, load_pod
from tests.support.waiting import await_that
from tools.kube_versions import server_minor

GATE, HELPER = "podsettle-kubelet-gate", "podsettle-linger"
RULES = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [255]}}]
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    # Of the API server's release, at most 1.35: from 1.36 on, Auto would choose image volumes.
    **node("worker", "cri-o://1.35.2", f"v1.{min(server_minor(), 35)}.2", {}),
}
HAS_CHANGE_POLICY, HAS_RESTART_RULES = server_minor() >= 33, server_minor() >= 35
"""Which fields the API server has without a feature gate."""
GATE_ALONE = {"test-remedies": "gate"}

POLICIES = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: every-remedy}
spec:
  namespaceSelector: {}
  podSelector: {matchExpressions: [{key: test-remedies, operator: DoesNotExist}]}
  remedies:
    seLinuxChangePolicy: Recursive
    fsGroupChangePolicy: OnRootMismatch
    postInitSleep: {}
    openFiles: {soft: 65536, hard: 524288, initContainers: ["*"], delivery: Binary}
    retryInitExit255: {initContainers: [prepare, fast, a]}
    kubeletGate: {}
---
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: gate-alone}
spec:
  namespaceSelector: {}
  podSelector: {matchLabels: {test-remedies: gate}}
  remedies:
    kubeletGate: {timeout: 1s}
---
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: both-gates}
spec:
  namespaceSelector: {}
  podSelector: {matchLabels: {test-remedies: both-gates}}
  remedies:
    startGate: {waitFor: [{tcp: "169.254.170.23:80"}], podTargets: true}
    kubeletGate: {timeout: 1s}
"""
DOCUMENTS: list[Json] = [*yaml.safe_load_all(POLICIES), NODE]


@pytest.fixture(scope="module")
def settling(
    cluster: KubeCluster, baselines: dict[str, Json], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeCluster]:
    """The cluster with podsettle registered, and every fixture pod's baseline taken before."""
    assert len(baselines) == len(PODS)
    with podsettle_called_by(cluster, tmp_path_factory.mktemp("own"), documents=DOCUMENTS):
        yield cluster


@pytest.mark.parametrize("path", PODS, ids=lambda path: path.stem)
def test_every_pod_is_created_with_each_remedy_once(
    path: Path, settling: KubeCluster, baselines: dict[str, Json]
) -> None:
    baseline, pod = baselines[path.stem], load_pod(path)
    created = create(settling, fresh(pod) if "name" in pod["metadata"] else pod)
    if path.stem in UNTOUCHED:
        assert normal(created) == normal(baseline)
        return
    expected = "Recursive" if HAS_CHANGE_POLICY else None
    security = created["spec"]["securityContext"]
    assert security.get("seLinuxChangePolicy") == expected
    # Each fixture pod with a group has a claim, too.
    expected = "OnRootMismatch" if "fsGroup" in security else None
    assert security.get("fsGroupChangePolicy") == expected
    names = init_names(created)
    assert names[-1] == GATE
    assert names.count(GATE) == 1
    theirs = [name for name in names if name not in (GATE, HELPER)]
    assert theirs == init_names(baseline)
    is_retried = HAS_RESTART_RULES and created["spec"]["restartPolicy"] == "Never"
    retried = {"prepare", "fast", "a"} if is_retried else set()
    before = {c["name"]: c for c in baseline["spec"].get("initContainers", [])}
    for container in created["spec"]["initContainers"]:
        name = container["name"]
        if name in retried:
            assert container["restartPolicy"] == "Never"
            assert container["restartPolicyRules"] == RULES
        else:
            assert container.get("restartPolicy") == before.get(name, {}).get("restartPolicy")
            assert "restartPolicyRules" not in container
    assert created["status"]["qosClass"] == baseline["status"]["qosClass"]
    names_of = [[c["name"] for c in each["spec"]["containers"]] for each in (created, baseline)]
    assert names_of[0] == names_of[1]


def test_fixture_pods_get_a_retry_rule_and_a_change_policy() -> None:
    """Without these pods, the test above would compare nothing."""
    pods = [load_pod(path) for path in PODS if path.stem not in UNTOUCHED]
    assert any("prepare" in init_names(p) and p["spec"]["restartPolicy"] == "Never" for p in pods)
    security = [pod["spec"].get("securityContext", {}) for pod in pods]
    assert any("fsGroup" not in each for each in security)
    assert any("fsGroup" in each and "fsGroupChangePolicy" not in each for each in security)


def test_api_server_refuses_fs_group_change_policy_in_a_pod_for_windows(
    cluster: KubeCluster,
) -> None:
    """The reason for which podsettle leaves these pods unchanged."""
    pod = simple_pod("a")
    security = {"fsGroupChangePolicy": "OnRootMismatch"}
    pod["spec"] |= {"os": {"name": "windows"}, "securityContext": security}
    refused = cluster.create_pod(pod, dry_run=True)
    assert refused.status == 422
    assert "fsGroupChangePolicy: Forbidden" in refused.body["message"]


def test_one_container_in_front_is_both_gates_and_a_restricted_namespace_admits_it(
    settling: KubeCluster,
) -> None:
    namespace = settling.namespace(
        "restricted-", labels={"pod-security.kubernetes.io/enforce": "restricted"}
    )
    pod = simple_pod("a", namespace, securityContext=RESTRICTED)
    pod["metadata"]["labels"] = {"test-remedies": "both-gates"}
    pod["metadata"]["annotations"] = {"podsettle.dev/start-gate": "mysql.prod:3306"}
    gate, *others = create(settling, pod)["spec"]["initContainers"]
    assert (gate["name"], [each["name"] for each in others]) == (GATE, ["prepare"])
    assert gate["args"] == [
        *("--timeout", "15s", "--tcp", "169.254.170.23:80", "--tcp", "mysql.prod:3306"),
        *("--kubelet", "1s"),
    ]
    assert wrappers(gate) == 0


@pytest.mark.parametrize("labels", [{}, GATE_ALONE], ids=["with the helper", "without the helper"])
def test_a_restricted_namespace_admits_the_injected_containers(
    labels: Json, settling: KubeCluster
) -> None:
    namespace = settling.namespace(
        "restricted-", labels={"pod-security.kubernetes.io/enforce": "restricted"}
    )
    assert settling.create_pod(simple_pod("without", namespace)).status == 403
    pod = simple_pod("a", namespace, securityContext=RESTRICTED)
    pod["metadata"]["labels"] = labels
    created = create(settling, pod)
    assert init_names(created) == [*([] if labels else [HELPER]), "prepare", GATE]


@pytest.mark.parametrize("qos", ["Burstable", "Guaranteed"])
def test_a_quota_on_limits_admits_the_injected_containers(qos: str, settling: KubeCluster) -> None:
    namespace = settling.namespace("quota-")
    settling.quota(
        namespace,
        {"limits.cpu": "1", "limits.memory": "64Mi", "requests.cpu": "1", "requests.memory": "1Gi"},
    )
    refused = settling.create_pod(simple_pod("without", namespace))
    assert refused.status == 403, "the quota does not enforce"
    # The quota is full after one container, so the injected one must not reserve more.
    created = create(settling, simple_pod("a", namespace, resources=RESOURCES[qos]))
    assert init_names(created) == [HELPER, "prepare", GATE]
    for injected in (created["spec"]["initContainers"][0], created["spec"]["initContainers"][-1]):
        assert "limits" in injected["resources"]


def test_a_limit_range_admits_the_injected_containers(settling: KubeCluster) -> None:
    namespace = settling.namespace("range-")
    limits = {
        "type": "Container",
        "min": {"cpu": "50m", "memory": "32Mi"},
        "maxLimitRequestRatio": {"cpu": "2"},
    }
    body = {"metadata": {"name": "range"}, "spec": {"limits": [limits]}}
    settling.create(f"/api/v1/namespaces/{namespace}/limitranges", body)
    small = simple_pod("small", namespace, resources={"limits": {"cpu": "10m", "memory": "64Mi"}})
    await_that(
        lambda: settling.create_pod(small, dry_run=True).status == 403, "the limit range enforces"
    )
    created = create(settling, simple_pod("a", namespace, resources=RESOURCES["Guaranteed"]))
    assert init_names(created) == [HELPER, "prepare", GATE]


@pytest.mark.slow
def test_api_server_without_restart_rules_gets_no_restart_rules(tmp_path: Path) -> None:
    """A feature gate may disable restart rules in a server that is new enough."""
    off = "ContainerRestartRules=false,RestartAllContainersOnContainerExits=false"
    flags = [f"--feature-gates={off}"] if HAS_RESTART_RULES else []
    with (
        KubeCluster.start(*flags) as cluster,
        podsettle_called_by(cluster, tmp_path, documents=DOCUMENTS),
    ):
        created = create(cluster, simple_pod("a"))
        assert init_names(created) == [HELPER, "prepare", GATE]
        assert "restartPolicy" not in created["spec"]["initContainers"][1]
