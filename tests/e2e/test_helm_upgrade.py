"""Test of an upgrade from an older chart and its podsettle with policies in place, and back.

The commands are those of docs/install.md. Helm does not upgrade CRDs, so one of them does. The
older podsettle has one port, and the Service's endpoints are those that the real controllers write
for pods of both. They come from kube-controller-manager. The pods are objects without a kubelet:
each says that it is ready, and where its process listens.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.support.checkout import checked_out
from tests.support.e2e_pods import create, is_called, normal, simple_pod
from tests.support.factories import Json
from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    FAIL,
    OWN,
    POLICIES,
    RELEASE,
    ROUTING,
    Installation,
    Replica,
    policy,
)
from tests.support.kube.cluster import KubeCluster
from tests.support.kube.server import Server
from tests.support.pod_load import Load, creating_pods
from tests.support.waiting import await_that
from tools.build import tool

pytestmark = pytest.mark.slow

NODE = "node"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
OLD = "87fbd9b"
# Remedies that the older CRD has.
REMEDIES: Json = {
    "postInitSleep": {"when": "Always"},
    "retryInitExit255": {"when": "Always", "initContainers": ["prepare"]},
    "kubeletGate": {"when": "Always", "timeout": "20s"},
    "skipSELinuxRelabel": {"when": "Always", "pods": "All"},
    "seLinuxChangePolicy": "Recursive",
    "fsGroupChangePolicy": "OnRootMismatch",
}
# One that it does not have.
START_GATE = policy("later", remedies={"startGate": {"waitFor": [{"tcp": "192.0.2.1:80"}]}})


@pytest.fixture
def old() -> Iterator[Path]:
    """The sources and the chart of an older version, with a CRD that is older still."""
    with checked_out(OLD) as tree:
        (path,) = (tree / "charts/podsettle/crds").iterdir()
        crd = yaml.safe_load(path.read_text().replace(" || has(self.startGate)", ""))
        (version,) = crd["spec"]["versions"]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        del spec["properties"]["remedies"]["properties"]["startGate"]
        path.write_text(yaml.safe_dump(crd))
        yield tree


@contextmanager
def running_endpoint_controllers(cluster: KubeCluster) -> Iterator[None]:
    """Run the controllers of EndpointSlices and Endpoints until the block ends."""
    flags = [
        f"--kubeconfig={cluster.kubeconfig}",
        "--controllers=endpointslice-controller,endpoints-controller",
        # As in a busy cluster, API servers call replicas whose pods were deleted a second ago.
        "--endpointslice-updates-batch-period=1s",
        "--endpoint-updates-batch-period=1s",
        "--leader-elect=false",
        "--secure-port=0",
    ]
    program = tool("kube-controller-manager")
    server = Server(program, flags, cluster.directory / f"{program.name}.log")
    server.start()
    try:
        yield
    finally:
        server.kill()


class InstallationWithPods(Installation):
    """A release on a cluster whose controllers write the endpoints of its Service."""

    def admit(self, replica: Replica) -> None:
        """Create the pod of a ready replica."""
        # A pod without a node is deleted at once, without a grace period.
        self.create_pod(replica, nodeName=NODE)

    def retire(self, *replicas: Replica) -> None:
        """Delete pods. Their processes get the signal before the endpoints have changed."""
        for replica in replicas:
            self.replicas.remove(replica)
            self.cluster.request("DELETE", f"{OWN}/pods/{replica.pod_name}")
            replica.signal(signal.SIGTERM)
        for replica in replicas:
            replica.await_end()
            self.withdraw(replica)

    def withdraw(self, replica: Replica) -> None:
        """Delete the pod of a replica whose process has ended."""
        self.delete_pod(replica.pod_name)

    def endpoints(self) -> dict[str, set[str]]:
        """Return the names of the ports by which the Service leads to each ready pod."""
        slices = self.get(f"{SLICES}?labelSelector=kubernetes.io/service-name={RELEASE}")["items"]
        found: dict[str, set[str]] = {}
        for each in slices:
            ports = {port["name"] for port in each["ports"] or ()}
            for endpoint in each["endpoints"] or ():
                if endpoint["conditions"]["ready"]:
                    found.setdefault(endpoint["targetRef"]["name"], set()).update(ports)
        return found

    def endpoints_of(self, replica: Replica) -> set[str]:
        """Return the names of the ports by which the Service leads to a replica."""
        return self.endpoints().get(replica.pod_name, set())

    def ask_service(self, port: str, path: str) -> tuple[int, Json]:
        """Return the answer to a GET through the Service, by the API server's proxy."""
        proxied = f"{OWN}/services/https:{RELEASE}:{port}/proxy{path}"
        status, body, _ = self.cluster.request("GET", proxied)
        return status, body


@pytest.fixture
def release(tmp_path: Path) -> Iterator[InstallationWithPods]:
    with KubeCluster.start(ROUTING) as cluster:
        # The controller leaves out pods of a node that does not exist.
        cluster.create("/api/v1/nodes", {"metadata": {"name": NODE}})
        installation = InstallationWithPods(cluster, tmp_path)
        with running_endpoint_controllers(cluster):
            yield installation
            installation.stop_all(signal.SIGKILL)


def start(release: InstallationWithPods, ports: set[str], sources: Path | None = None) -> Replica:
    """Start a replica of the installed chart, and wait until the Service leads to these ports."""
    replica = release.start_ready(sources=sources)
    await_that(lambda: release.endpoints_of(replica) == ports, "the Service leads to it")
    return replica


def specs(release: InstallationWithPods) -> dict[str, Json]:
    return {each["metadata"]["name"]: each["spec"] for each in release.get(POLICIES)["items"]}


def finds_the_crd_current(release: InstallationWithPods) -> bool:
    """Whether the documented command shows that for each policy."""
    shown = release.shell(release.documented("install.md", "Upgrade", 1))
    return all(f"{name} The installed CRD has every field" in shown for name in specs(release))


def await_webhooks(release: InstallationWithPods, *namespaces: str) -> None:
    """Wait until the pods of namespaces are settled."""
    for namespace in namespaces:
        await_that(lambda n=namespace: is_called(release.cluster, n), "the namespace is covered")  # type: ignore[misc]


def test_documented_upgrade_loses_no_creation_and_can_be_rolled_back(
    release: InstallationWithPods, old: Path
) -> None:
    cluster = release.cluster
    release.install(*FAIL, chart=old / "charts/podsettle")
    before = [start(release, {"https"}, old) for _ in range(2)]
    wide = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
    cluster.create(POLICIES, policy("wide", **wide, remedies=REMEDIES))
    cluster.create(POLICIES, policy("opt-in"))
    chosen = cluster.namespace("chosen-", labels={"podsettle.dev/policy": "opt-in"})
    selected = cluster.namespace("selected-", labels={"team": "a"})
    await_webhooks(release, chosen, selected)
    assert cluster.request("POST", POLICIES, START_GATE).status == 422
    stored, written = specs(release), release.written_by_podsettle()
    pods = [create(cluster, simple_pod("settled", each)) for each in (chosen, selected)]
    lease = release.get(LEASES)["items"][0]["metadata"]
    assert release.ask_service("443", "/metrics")[0] == 401

    with creating_pods(
        cluster, simple_pod("a", chosen), simple_pod("b", selected), per_second=20
    ) as load:
        release.shell(release.documented("install.md", "Upgrade"))
        notes = release.shell(release.documented("install.md", "Upgrade", 2))
        assert "scrape configurations of your own need the port `web`" in notes
        # The Service now has two ports, and the older replicas have only the first one.
        new = [start(release, {"https", "web"})]
        assert all(release.endpoints_of(each) == {"https"} for each in before)
        await_created(load, 60)
        release.retire(before[0])
        new.append(start(release, {"https", "web"}))
        release.retire(before[1])
        await_created(load, 60)
    assert (load.failed, load.unsettled) == ([], [])
    # A client that still scrapes the port of reviews learns which port it needs.
    status, answer = release.ask_service("443", "/metrics")
    assert status == 404
    assert "--web-port" in answer["text"]
    assert release.ask_service("web", "/metrics")[0] == 401
    # The older chart had a Lease of its own, which Helm deletes.
    (created,) = (each["metadata"] for each in release.get(LEASES)["items"])
    assert created["uid"] != lease["uid"]
    assert created["ownerReferences"][0]["kind"] == "Deployment"

    await_that(lambda: finds_the_crd_current(release), "the policies say so")
    assert specs(release) == stored
    assert {**release.written_by_podsettle(), "holder": ""} == {**written, "holder": ""}
    for pod in pods:
        metadata = {key: pod["metadata"][key] for key in ("namespace", "annotations")}
        again = create(cluster, {**pod, "metadata": {**metadata, "name": "again"}}, dry_run=True)
        assert normal(again) == normal(pod)
        fresh = create(cluster, simple_pod("fresh", metadata["namespace"]), dry_run=True)
        applied = "podsettle.dev/applied"
        assert fresh["metadata"]["annotations"][applied] == metadata["annotations"][applied]
    assert cluster.create(POLICIES, START_GATE)["spec"]["remedies"].keys() == {"startGate"}
    assert len(release.helm("history", RELEASE, "-o", "yaml").split("revision:")) == 3

    # The page's history is longer: its revision is the third.
    rollback = release.documented("install.md", "Upgrade", 3)
    assert " 3 " in rollback
    with creating_pods(
        cluster, simple_pod("a", chosen), simple_pod("b", selected), per_second=20
    ) as load:
        release.shell(rollback.replace(" 3 ", " 1 "))
        # The Service has one port again. The newer replicas keep their endpoints for it.
        await_that(lambda: release.endpoints_of(new[0]) == {"https"}, "the port has gone")
        back = [start(release, {"https"}, old)]
        await_created(load, 60)
        release.retire(new[0])
        back.append(start(release, {"https"}, old))
        release.retire(new[1])
        await_created(load, 60)
    assert (load.failed, load.unsettled) == ([], [])
    assert release.ask_service("443", "/metrics")[0] == 401
    assert {name: specs(release)[name] for name in stored} == stored
    assert len(back) == len(release.endpoints()) == 2
    await_webhooks(release, chosen, selected)


def await_created(load: Load, number: int) -> None:
    """Wait until this many further pods were created."""
    before = load.created
    await_that(lambda: load.created + len(load.failed) >= before + number, "pods are created")
