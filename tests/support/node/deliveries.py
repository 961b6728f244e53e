"""Namespaces in which podsettle wraps containers, one for each delivery, on a real node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.support.helm import NAMESPACE, run
from tests.support.helm_release import POLICIES, RELEASE, policy
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.node.containerd import Containerd
from tests.support.node.delivery_cases import RESTRICTED, in_shell
from tests.support.node.images import NodeImages
from tests.support.node.node import RealNode
from tests.support.node.pods import all_ended, pod_path
from tests.support.node.release import await_deployment, image_values
from tests.support.paths import CHART
from tests.support.waiting import await_that
from webhook.core.constants import ANNOTATION_APPLIED, LABEL_POLICY

DELIVERIES = ("Shell", "Binary", "ImageVolume")
WITH_HELPER = ("Binary", "ImageVolume")
LIMITED = tuple(f"Limits{delivery}" for delivery in DELIVERIES)
"""In place of a delivery: openFiles alone, by that delivery."""
BOTH = "Both"
"""In place of a delivery: openFiles beside postInitSleep, with `Auto`."""
LIMITS = {"soft": 4096, "hard": 8192}
"""Lower than the limits of a node under test."""
PLAIN = ""
"""In place of a delivery: a namespace without a policy."""
LONG = "Long"
"""In place of a delivery: `Auto` with a minimum lifetime that the times in a pod's status show."""
LONG_SECONDS = 4
FINALIZER = "podsettle.test/keep"
"""Keeps a deleted pod until the test has read how its containers ended."""
# The node has few cores, and some tests start many containers at once.
POD_TIMEOUT_SECONDS = 300.0


def policy_of(delivery: str) -> str:
    """Return the name of the policy for a delivery."""
    return f"delivery-{delivery.lower()}"


def namespace_of(delivery: str) -> str:
    """Return the namespace for a delivery, or the one without a policy."""
    return f"deliveries-{(delivery or 'plain').lower()}"


@dataclass(frozen=True)
class Settled:
    """A node with podsettle and a namespace for each delivery."""

    node: RealNode

    @classmethod
    def on(cls, node: RealNode) -> Settled:
        """Install podsettle if it is not there yet, and cover a namespace for each delivery."""
        _install(node)
        made = cls(node)
        for delivery in filter(made.supports, (*DELIVERIES, *LIMITED, BOTH, LONG)):
            document = policy(policy_of(delivery), remedies=_remedies(delivery))
            # Another module of tests may have made it on this node.
            status, answer, _ = node.cluster.request("POST", POLICIES, document)
            assert status in (201, 409), answer
            node.namespace(namespace_of(delivery), {LABEL_POLICY: policy_of(delivery)})
            made.await_policy(namespace_of(delivery))
        node.namespace(namespace_of(PLAIN))
        return made

    def supports(self, delivery: str) -> bool:
        """Whether the node's runtime mounts image volumes, if the delivery needs one."""
        runtime = self.node.runtime
        mounts_none = isinstance(runtime, Containerd) and runtime.line == "1.7"
        return not (delivery.endswith("ImageVolume") and mounts_none)

    @property
    def images(self) -> NodeImages:
        """The images of the node."""
        return self.node.images

    @property
    def cluster(self) -> KubeCluster:
        """The cluster of the node."""
        return self.node.cluster

    def await_policy(self, namespace: str, labels: Mapping[str, str] | None = None) -> None:
        """Wait until podsettle changes the pods of a namespace that have these labels."""
        one = in_shell("only", "true", self.images.busybox, securityContext=RESTRICTED)
        pod = {
            "metadata": {"generateName": "probe-", "namespace": namespace, "labels": labels or {}},
            "spec": {"restartPolicy": "Never", "containers": [one]},
        }

        def changes() -> bool:
            status, made, _ = self.cluster.create_pod(pod, dry_run=True)
            annotations = made.get("metadata", {}).get("annotations", {})
            return status == 201 and ANNOTATION_APPLIED in annotations

        await_that(changes, f"podsettle changes the pods in {namespace}")

    def create(self, delivery: str, name: str, spec: Json, **metadata: object) -> Json:
        """Create a pod in the namespace for a delivery. It runs once."""
        named = {"name": name, "namespace": namespace_of(delivery), **metadata}
        once = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 10, **spec}
        return self.node.create_pod({"metadata": named, "spec": once})

    def await_pod(self, delivery: str, name: str, condition: Callable[[Json], object]) -> Json:
        """Return a pod as soon as the condition is true of it."""
        return self.node.await_pod(namespace_of(delivery), name, condition, POD_TIMEOUT_SECONDS)

    def await_end(self, delivery: str, name: str) -> Json:
        """Return a pod when all its containers have ended."""
        return self.await_pod(delivery, name, all_ended)

    def run(self, delivery: str, name: str, spec: Json) -> Json:
        """Create a pod, and return it after its end."""
        self.create(delivery, name, spec)
        return self.await_end(delivery, name)

    def run_in(
        self, deliveries: Iterable[str], name: str, spec: Json
    ) -> Iterator[tuple[str, Json]]:
        """Create a pod for each delivery, and yield each of them after its end."""
        created = list(filter(self.supports, deliveries))
        for delivery in created:
            self.create(delivery, name, spec)
        for delivery in created:
            yield delivery, self.await_end(delivery, name)

    def delete(self, delivery: str, name: str) -> None:
        """Ask for the end of a pod, with the pod's grace period."""
        path = pod_path(namespace_of(delivery), name)
        status, answer, _ = self.cluster.request("DELETE", path)
        assert status in (200, 202), answer

    def release(self, delivery: str, name: str) -> None:
        """Remove FINALIZER from a pod."""
        path = pod_path(namespace_of(delivery), name)
        self.cluster.request("PATCH", path, {"metadata": {"finalizers": None}})

    def log(self, delivery: str, pod: str, container: str, *, follow: bool = False) -> str:
        """Return the log of a container, with `follow` when the container has ended."""
        return self.node.logs(namespace_of(delivery), pod, container, follow=follow)


def _install(node: RealNode) -> None:
    """Install the chart with the images that were built from this checkout."""
    node.namespace(NAMESPACE)
    # A second replica would only share the cores with the tests' pods.
    flags = ("--install", "--namespace", NAMESPACE, *image_values(node), "--set=replicas=1")
    done = run("helm", "upgrade", RELEASE, CHART, *flags, kubeconfig=node.cluster.kubeconfig)
    assert done.returncode == 0, done.stderr
    await_deployment(node, NAMESPACE, RELEASE)


def _remedies(delivery: str) -> Json:
    every = {"initContainers": ["*"], "containers": ["*"]}
    sleep, limits = {"when": "Always", **every}, {**LIMITS, **every}
    if delivery == LONG:
        return {"postInitSleep": {"minLifetime": f"{LONG_SECONDS}s", **sleep}}
    if delivery == BOTH:
        return {"postInitSleep": sleep, "openFiles": limits}
    if delivery in LIMITED:
        return {"openFiles": {**limits, "delivery": delivery.removeprefix("Limits")}}
    return {"postInitSleep": {**sleep, "delivery": delivery}}
