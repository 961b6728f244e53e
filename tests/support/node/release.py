"""podsettle on a real node, installed by its chart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.helm import NAMESPACE, run
from tests.support.helm_release import RELEASE
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.node.node import RealNode
from tests.support.paths import CHART
from tests.support.policy_objects import POLICIES
from tests.support.process import podsettle
from tests.support.waiting import await_that
from webhook import __version__

# On an emulated processor, the pull of podsettle's image alone takes three minutes.
_TIMEOUT_SECONDS = 600.0


def image_values(node: RealNode) -> tuple[str, ...]:
    """Return the flags of helm that choose the node's images."""
    return (
        f"--set=image.repository={node.images.repository('podsettle')}",
        f"--set=image.tag={node.images.tag}",
        f"--set=lingerImage={node.images.linger}",
        f"--set=lingerVersion={__version__}",
    )


def install_podsettle(node: RealNode) -> None:
    """Install the chart with the node's images, and wait until the Deployment is available."""
    done = run(
        "helm",
        *("install", RELEASE, CHART, "--namespace", NAMESPACE, "--create-namespace"),
        *image_values(node),
        kubeconfig=node.cluster.kubeconfig,
    )
    assert done.returncode == 0, done.stderr
    await_deployment(node, NAMESPACE, RELEASE)


def await_deployment(node: RealNode, namespace: str, name: str) -> None:
    """Wait until a Deployment has all its replicas."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"

    def is_available() -> bool:
        found = node.cluster.request("GET", path).body
        wanted: int = found["spec"]["replicas"]
        return bool(found["status"].get("availableReplicas") == wanted)

    with events_on_failure(node.cluster, namespace):
        await_that(is_available, f"Deployment {namespace}/{name} is available", _TIMEOUT_SECONDS)


@contextmanager
def events_on_failure(cluster: KubeCluster, namespace: str) -> Iterator[None]:
    """Add the events of a namespace to a failed assertion: they have the cause."""
    try:
        yield
    except AssertionError as error:
        error.add_note(cluster.kubectl("get", "events", "-n", namespace).stdout[-4000:])
        raise


def condition(node: RealNode, policy: str, kind: str) -> str | None:
    """Return the status of a condition of a SettlePolicy, or None if there is none yet."""
    found = node.cluster.request("GET", f"{POLICIES}/{policy}").body
    for each in found.get("status", {}).get("conditions", ()):
        if each["type"] == kind:
            status: str = each["status"]
            return status
    return None


def previewed(node: RealNode, pod: Json, *policies: Path, output: str = "json") -> str:
    """Return what `podsettle preview` prints for a pod and policies, on the node's cluster."""
    done = podsettle(
        "preview",
        f"--kubeconfig={node.cluster.kubeconfig}",
        f"--output={output}",
        *policies,
        "-",
        stdin=json.dumps(pod),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
