"""podsettle beside Kueue. Its build takes minutes, so `.ci/run` leaves this module out."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

import pytest
import yaml

from tests.support.e2e_pods import HEAVY, create, init_names, is_called, simple_pod
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.kube.server import Server
from tests.support.process import RunningServer, free_port
from tests.support.registered_webhook import registered
from tests.support.waiting import await_that
from tools.build import SETS, module_directory, tool

pytestmark = pytest.mark.slow

PREFIX = "kueue.x-k8s.io"
PODS = "/api/v1/namespaces/default/pods"
SECRET = "/api/v1/namespaces/kueue-system/secrets/kueue-webhook-server-cert"
CONFIGURATION = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {{healthProbeBindAddress: "127.0.0.1:0"}}
metrics: {{bindAddress: "0"}}
webhook: {{host: 127.0.0.1, port: {port}, certDir: {directory}}}
internalCertManagement: {{enable: true}}
leaderElection: {{leaderElect: false}}
integrations: {{frameworks: [pod]}}
"""
QUEUE = """\
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: q}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors: [{name: q, resources: [{name: cpu, nominalQuota: 9},{name: memory, nominalQuota: 9G}]}]
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: q}, spec: {clusterQueue: q}}
"""


@pytest.fixture(scope="module")
def kueue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """A cluster of its own, because Kueue's webhooks are called for each pod."""
    directory, port = tmp_path_factory.mktemp("kueue"), free_port()
    with KubeCluster.start() as cluster:
        cluster.create("/apis/node.k8s.io/v1/runtimeclasses", HEAVY)
        module = module_directory(SETS["kueue"], "sigs.k8s.io/kueue")
        text = cluster.kubectl("kustomize", module / "config/default").stdout
        kinds = re.compile("CustomResourceDef.*|Namespace|Secret|Service|.*WebhookConfiguration")
        documents = [each for each in yaml.safe_load_all(text) if kinds.fullmatch(each["kind"])]
        for each in documents:
            if each["kind"] == "Service":
                # The API server calls such a service at its external name.
                each["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        text = re.sub(r"( +)(path: /)", rf"\1port: {port}\n\1\2", yaml.safe_dump_all(documents))
        cluster.kubectl("apply", "--server-side", "-f-", input=text)
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
        configuration = CONFIGURATION.format(port=port, directory=directory)
        (directory / "kueue.yaml").write_text(configuration)
        flags = ["--feature-gates=VisibilityOnDemand=false", f"--config={directory}/kueue.yaml"]
        environment = {"KUBECONFIG": str(cluster.kubeconfig)}
        server = Server(tool("kueue"), flags, directory / "kueue.log", environment)
        server.start()
        try:
            server.await_that(lambda: "data" in cluster.request("GET", SECRET).body)
            # The kubelet would mount the Secret.
            for key, value in cluster.request("GET", SECRET).body["data"].items():
                (directory / key).write_bytes(base64.b64decode(value))
            server.await_that(lambda: not cluster.kubectl("apply", "-f-", input=QUEUE).returncode)
            yield cluster
        finally:
            server.kill()


def member(group: str, name: str) -> Json:
    pod = simple_pod(f"{group}-{name}", command=["/app"], resources={"requests": {"cpu": "1"}})
    labels = {f"{PREFIX}/queue-name": "q", f"{PREFIX}/pod-group-name": group}
    annotations = {f"{PREFIX}/pod-group-total-count": "2"}
    pod["metadata"] |= {"labels": labels, "annotations": annotations}
    return pod


# The API server calls webhooks in the order of their names.
@pytest.mark.parametrize(("name", "replacement"), [("podsettle", "missed"), ("a", "settled")])
def test_group_of_settled_pods_is_admitted_and_replaced(
    kueue: KubeCluster, podsettle_server: RunningServer, name: str, replacement: str
) -> None:
    def is_admitted(member: str) -> bool:
        return "schedulingGates" not in kueue.request("GET", f"{PODS}/{name}-{member}").body["spec"]

    def create_settled(*names: str) -> None:
        url, ca = f"{podsettle_server.url}/mutate", podsettle_server.ca.read_bytes()
        with registered(kueue, name, url, ca):
            await_that(lambda: is_called(kueue), "the API server calls podsettle")
            for each in names:
                create(kueue, member(name, each))
        await_that(lambda: not is_called(kueue), "the API server calls podsettle no more")

    create_settled("0", "1")
    await_that(lambda: is_admitted("0") and is_admitted("1"), "the group is admitted")
    workload = kueue.request("GET", f"/apis/{PREFIX}/v1beta2/namespaces/default/workloads/{name}")
    (pod_set,) = workload.body["spec"]["podSets"]
    assert (pod_set["count"], init_names(pod_set["template"])[0]) == (2, "podsettle-linger")
    (assigned,) = workload.body["status"]["admission"]["podSetAssignments"]
    assert assigned["resourceUsage"] == {"cpu": "2200m", "memory": "64Mi"}, "with the overhead"
    kueue.request("PATCH", f"{PODS}/{name}-0/status", {"status": {"phase": "Failed"}})
    create(kueue, member(name, "missed"))
    create_settled("settled")
    await_that(lambda: is_admitted(replacement), "the replacement is admitted")
    assert is_admitted("missed") == (replacement == "missed")
