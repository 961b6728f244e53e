"""A cluster of one real node.

    with RealNode.start(Containerd("2.4")) as node:
        finished = node.run_pod(pod)
        print(node.logs(finished, "main"))

It runs only inside the namespaces of `python -m tests.support.node`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from tests.support.kube.cluster import Json, KubeCluster
from tests.support.node import cgroups
from tests.support.node.control_plane import running_control_plane, running_proxy
from tests.support.node.dns import serving_names
from tests.support.node.images import NodeImages, directory
from tests.support.node.init import NODE_NAME
from tests.support.node.inside import require_inside
from tests.support.node.kubelet import PORT, Kubelet
from tests.support.node.leftovers import remove_leftovers
from tests.support.node.network import NODE_ADDRESS
from tests.support.node.node_paths import SECOND, SECOND_CGROUP
from tests.support.node.registry_server import serve
from tests.support.node.runtime import Runtime
from tests.support.waiting import await_that

# For each thing that a test waits for. A cold start on a busy machine takes a minute.
TIMEOUT_SECONDS = 180.0

_LOGS = Path("/var/log")
# Both kubelets listen at one address.
_SECOND_KUBELET = {"cgroupRoot": f"/{SECOND_CGROUP}", "healthzPort": 0, "port": PORT + 1}
_CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_SERVING = "kubernetes.io/kubelet-serving"


class RealNode:
    """A node that is ready, and its cluster."""

    def __init__(
        self, cluster: KubeCluster, images: NodeImages, runtime: Runtime, kubelet: Kubelet
    ) -> None:
        self.cluster = cluster
        self.images = images
        self.runtime = runtime
        self.kubelet = kubelet
        self.name = kubelet.node

    @classmethod
    @contextmanager
    def start(
        cls,
        runtime: Runtime,
        *,
        approve: bool = True,
        images: NodeImages | None = None,
    ) -> Iterator[Self]:
        """Start a node, and remove it when the block ends.

        Without `images`, whose registry the caller runs, the node has a registry of its own.
        Without `approve`, the kubelet's serving certificate waits for `approve_certificates`.
        """
        require_inside()
        with ExitStack() as stack:
            stack.callback(remove_leftovers)
            if images is None:
                data = directory()
                images = NodeImages.of(data)
                stack.enter_context(serve(data, _LOGS / "registry.log", images.registry))
            cluster = stack.enter_context(KubeCluster.start(address=NODE_ADDRESS))
            stack.enter_context(running_control_plane(cluster, _LOGS))
            stack.enter_context(serving_names(cluster, NODE_ADDRESS))
            stack.callback(runtime.stop)
            runtime.start()
            agent = Kubelet(cluster, NODE_NAME, runtime.socket)
            node = cls(cluster, images, runtime, agent)
            stack.callback(node.kubelet.stop)
            node.kubelet.start()
            await_that(node.is_ready, "the node is ready", TIMEOUT_SECONDS)
            stack.enter_context(running_proxy(cluster, node.name, _LOGS))
            if approve:
                node.await_serving()
            yield node

    @contextmanager
    def with_second(self, runtime: Runtime) -> Iterator[Self]:
        """Start a second node in this cluster, and stop it when the block ends.

        The runtime has the paths SECOND. Both nodes share the network: the address, the bridge for
        pods and kube-proxy.
        """
        cgroups.create(each.mount_point / SECOND_CGROUP for each in cgroups.hierarchies())
        with ExitStack() as stack:
            stack.callback(runtime.stop)
            runtime.start()
            agent = Kubelet(self.cluster, "second", runtime.socket, _SECOND_KUBELET, SECOND)
            node = type(self)(self.cluster, self.images, runtime, agent)
            stack.callback(agent.stop)
            agent.start()
            await_that(node.is_ready, "the second node is ready", TIMEOUT_SECONDS)
            node.await_serving()
            yield node

    def await_serving(self) -> None:
        """Approve the kubelet's serving certificate, and wait until it serves with it."""
        await_that(self.approve_certificates, "the kubelet asks for a certificate")
        await_that(self.serves, "the kubelet serves", TIMEOUT_SECONDS)

    def is_ready(self) -> bool:
        """Whether the node's condition Ready is True, and the kubelet runs."""
        assert self.kubelet.running, f"the kubelet ended:\n{self.kubelet.log.read_text()[-4000:]}"
        conditions = self.status().get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def status(self) -> Json:
        """Return the status of the Node, which is empty before the kubelet has registered it."""
        code, found, _ = self.cluster.request("GET", f"/api/v1/nodes/{self.name}")
        return found["status"] if code == 200 else {}

    def node_info(self) -> Json:
        """Return the versions in the Node's status."""
        found: Json = self.status()["nodeInfo"]
        return found

    def approve_certificates(self) -> int:
        """Approve the requests of kubelets for serving certificates. Return how many there were."""
        approved = 0
        for request in self.cluster.request("GET", _CSRS).body["items"]:
            if request["spec"]["signerName"] == _SERVING and not request["status"]:
                condition = {"type": "Approved", "status": "True", "reason": "Test", "message": ""}
                request["status"] = {"conditions": [condition]}
                path = f"{_CSRS}/{request['metadata']['name']}/approval"
                approved += self.cluster.request("PUT", path, request).status == 200
        return approved

    def serves(self) -> bool:
        """Whether the kubelet answers the API server with a certificate that it trusts."""
        path = f"/api/v1/nodes/{self.name}/proxy/healthz"
        return self.cluster.request("GET", path).status == 200

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> str:
        """Make a namespace in which pods can run. A name that ends in `-` is a prefix."""
        made = self.cluster.namespace(name, labels=labels)
        path = f"/api/v1/namespaces/{made}/configmaps/kube-root-ca.crt"
        await_that(lambda: self.cluster.request("GET", path).status == 200, "it has the CA")
        return made

    def create_pod(self, pod: Json) -> Json:
        """Create a pod. The API server must accept it."""
        status, created, _ = self.cluster.create_pod(pod)
        assert status == 201, created
        return created

    def run_pod(self, pod: Json) -> Json:
        """Create a pod, and return it when it has Succeeded or Failed."""
        metadata = self.create_pod(pod)["metadata"]
        return self.await_pod(metadata["namespace"], metadata["name"], is_finished)

    def pod(self, namespace: str, name: str) -> Json:
        """Return a pod."""
        status, found, _ = self.cluster.request(
            "GET", f"/api/v1/namespaces/{namespace}/pods/{name}"
        )
        assert status == 200, found
        return found

    def await_pod(
        self,
        namespace: str,
        name: str,
        condition: Callable[[Json], object],
        seconds: float = TIMEOUT_SECONDS,
    ) -> Json:
        """Return a pod as soon as the condition is true of it."""
        found: list[Json] = []

        def is_true() -> object:
            found[:] = [self.pod(namespace, name)]
            return condition(found[0])

        try:
            await_that(is_true, f"pod {namespace}/{name} is as expected", seconds)
        except AssertionError as error:
            error.add_note(f"its status: {found[0]['status']}")
            raise
        return found[0]

    def logs(self, namespace: str, pod: str, container: str, *, follow: bool = False) -> str:
        """Return the log of a container from the kubelet, with `follow` when it has ended."""
        query = f"container={container}{'&follow=true' if follow else ''}"
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log?{query}"
        status, body, _ = self.cluster.request("GET", path)
        assert status == 200, body
        text: str = body["text"] if set(body) == {"text"} else str(body)
        return text


def is_finished(pod: Json) -> bool:
    """Whether no container of a pod will run again."""
    return pod["status"].get("phase") in {"Succeeded", "Failed"}
