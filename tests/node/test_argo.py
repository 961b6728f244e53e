"""Tests of podsettle with Argo Workflows' own controller, which runs Argo's own examples.

Argo is built from a clone: `make node ARGO_SOURCE=DIR`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
import yaml

from tests.support.helm_release import POLICIES, policy
from tests.support.kube.cluster import Json
from tests.support.kube.server import Server
from tests.support.node.argo_build import CRDS, RELEASE, SOURCE, find_argo
from tests.support.node.deliveries import POD_TIMEOUT_SECONDS, Settled
from tests.support.node.node import RealNode
from tests.support.node.node_pool import NEWEST
from tests.support.node.pods import all_ended, commands, exit_codes, pod_path, states, wrapper_of
from tests.support.node.registry_server import SECOND_ADDRESS as REGISTRY
from tests.support.node.registry_server import serve
from tests.support.node.runtime import Runtime
from tests.support.waiting import await_that

ARGO = find_argo()
pytestmark = pytest.mark.skipif(
    ARGO is None, reason=f"not built: {SOURCE}=DIR python -m tests.support.node.argo_build"
)
PLAIN, SETTLED = "argo-plain", "argo-settled"
WORKFLOW = "workflows.argoproj.io/workflow"
POLICY: Json = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SETTLED}},
    "podSelector": {"matchExpressions": [{"key": WORKFLOW, "operator": "Exists"}]},
    "remedies": {"postInitSleep": {"when": "Always", "containers": ["*"]}, "kubeletGate": {}},
}
# They are neither random nor need an artifact store. The container sets have no command.
EXAMPLES = (
    *("hello-world", "arguments-parameters", "steps", "dag-diamond", "dag-enhanced-depends"),
    *("exit-handler-step-level", "continue-on-fail", "exit-code-output-variable", "loops"),
    *("output-parameter", "expression-destructure-json", "init-container", "pod-spec-patch"),
    *("container-set-template/graph-workflow", "template-on-exit", "status-reference"),
)


@pytest.fixture(scope="module", params=[*NEWEST])
def node(
    shared_node: Callable[[Runtime], RealNode], request: pytest.FixtureRequest
) -> Iterator[RealNode]:
    """A node with Argo's controller, a namespace with the policy, and one without."""
    assert ARGO is not None
    settled = Settled.on(shared_node(NEWEST[request.param]()))
    node, cluster, logs = settled.node, settled.cluster, settled.node.kubelet.log.parent
    applied = cluster.kubectl("apply", "--server-side", "-k", ARGO / CRDS)
    assert applied.returncode == 0, applied.stderr
    cluster.create(POLICIES, policy("argo", **POLICY))
    for name in (PLAIN, SETTLED):
        node.namespace(name)
        rights = ("--clusterrole=cluster-admin", f"--serviceaccount={name}:default")
        cluster.kubectl("create", "-n", name, "rolebinding", "executor", *rights)
    cluster.kubectl("create", "-n", PLAIN, "configmap", "workflow-controller-configmap")
    settled.await_policy(SETTLED, {WORKFLOW: "probe"})
    image = f"--executor-image={REGISTRY}/argoexec:{RELEASE}"
    flags = (f"--kubeconfig={cluster.kubeconfig}", f"--namespace={PLAIN}", image)
    # As in Argo's own tests: the controller acts on a workflow at most once a second.
    settings = {"DEFAULT_REQUEUE_TIME": "1s", "LEADER_ELECTION_DISABLE": "true", "NO_PROXY": "*"}
    controller = Server(ARGO / "workflow-controller", flags, logs / "argo.log", settings)
    with serve(ARGO / "registry", logs / "argo-registry.log", REGISTRY):
        controller.start()
        yield node
        controller.kill()


def create(node: RealNode, namespace: str, example: str, *changes: tuple[str, str]) -> str:
    """Create the workflow of an example with images of the node, and return its path."""
    assert ARGO is not None
    text = (ARGO / "examples" / f"{example}.yaml").read_text()
    for old, new in changes:
        text = text.replace(old, new, 1)
    text = re.sub(r"image: (busybox|alpine)\S*", f"image: {node.images.busybox}", text)
    text = re.sub(r"image: \S+/argosay\S*", f"image: {REGISTRY}/argosay:{RELEASE}", text)
    path = f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}/workflows"
    return f"{path}/{node.cluster.create(path, yaml.safe_load(text))['metadata']['name']}"


def pods_of(node: RealNode, workflow: str) -> list[Json]:
    *_, namespace, _, name = workflow.split("/")
    pods = f"{pod_path(namespace)}?labelSelector={WORKFLOW}={name}"
    found: list[Json] = node.cluster.request("GET", pods).body["items"]
    return found


def outcome(node: RealNode, workflow: str) -> Json:
    """Return how a workflow, its nodes and its pods' containers end, without generated names."""
    status: Json = {}

    def has_ended() -> bool:
        status.update(node.cluster.request("GET", workflow).body.get("status", {}))
        ended = status.get("phase") in ("Succeeded", "Failed", "Error")
        return ended and all(map(all_ended, pods_of(node, workflow)))

    await_that(has_ended, f"{workflow} has ended", POD_TIMEOUT_SECONDS)
    steps, containers, name = [], [], workflow.split("/")[-1]
    for step in status["nodes"].values():
        shown = [step.get(key) for key in ("displayName", "phase", "message", "outputs")]
        steps.append(re.sub(rf"{name}(-[-\w]*\d{{5,}})?", "", json.dumps(shown, sort_keys=True)))
    for pod in pods_of(node, workflow):
        for each, code in exit_codes(pod).items():
            log = node.logs(pod["metadata"]["namespace"], pod["metadata"]["name"], each)
            # Argo's own lines begin with the time.
            lines = sorted(line for line in log.splitlines() if not line.startswith("time="))
            containers += [(each, code, lines)] if not each.startswith("podsettle-") else []
    return {"phase": status["phase"], "steps": sorted(steps), "containers": sorted(containers)}


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_of_argo_ends_as_without_podsettle(node: RealNode, example: str) -> None:
    plain, settled = (create(node, namespace, example) for namespace in (PLAIN, SETTLED))
    assert outcome(node, settled) == outcome(node, plain)
    for pod in pods_of(node, settled):
        own = {k: v for k, v in commands(pod).items() if not k.startswith("podsettle-")}
        assert {"init", "wait"} < own.keys()
        assert set(map(wrapper_of, own.values())) == {"helper"}


def test_init_container_ends_at_once_when_its_workflow_is_terminated(node: RealNode) -> None:
    grace = 'spec:\n  podSpecPatch: "terminationGracePeriodSeconds: 3600"\n'
    sleep = ('["echo", "hello"]', "[sleep, 1h]")
    workflow = create(node, SETTLED, "init-container", ("spec:\n", grace), sleep)

    def sleeps() -> bool:
        return any("running" in states(pod).get("hello", {}) for pod in pods_of(node, workflow))

    await_that(sleeps, "the init container runs")
    node.cluster.request("PATCH", workflow, {"spec": {"shutdown": "Terminate"}})
    await_that(lambda: not pods_of(node, workflow), "the pod is gone")
