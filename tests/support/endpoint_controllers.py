"""A release whose Service gets its endpoints from the real controllers, by a pod for each replica.

Old and new replicas can name different ports, and only the real controllers say which of them the
Service then leads to. They come from kube-controller-manager. The pods are objects without a
kubelet: each says that it is ready, and where its process listens.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.helm import NAMESPACE
from tests.support.helm_release import OWN, RELEASE, Installation, Replica
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.kube.server import Server
from tools.build import tool

_NODE = "node"
_SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"


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
        self.create_pod(replica, nodeName=_NODE)

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
        slices = self.get(f"{_SLICES}?labelSelector=kubernetes.io/service-name={RELEASE}")["items"]
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


@contextmanager
def installed_with_pods(cluster: KubeCluster, directory: Path) -> Iterator[InstallationWithPods]:
    """Return a place for a release, which is not installed yet, beside its controllers."""
    installation = InstallationWithPods(cluster, directory)
    # The controller leaves out pods of a node that does not exist.
    cluster.create("/api/v1/nodes", {"metadata": {"name": _NODE}})
    with running_endpoint_controllers(cluster):
        try:
            yield installation
        finally:
            installation.stop_all(signal.SIGKILL)
