"""`podsettle node-config containerd --volatile` in a containerd that runs pods.

A pod that runs shows that the drop-in leaves the CRI tables of the main file as they are: without
them containerd would know neither the pause image nor the CNI plugins of this node.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.kube.cluster import Json
from tests.support.kube.server import ServerError
from tests.support.node.containerd import Containerd
from tests.support.node.node import RealNode
from tests.support.node.node_pool import NodePool
from tests.support.node.shim import is_volatile
from tests.support.node_config import printed
from webhook.node_config.containerd import DROP_IN

OPTIONS = ("containerd", "--volatile", "--node-selector", "rootfs=volatile")
RUNTIMES = pytest.mark.parametrize(
    ("line", "main_version"),
    [("2.4", 4), ("2.4", 3), ("2.4", 2), ("2.3", 4), ("1.7", 2)],
    ids=lambda value: f"version {value}" if isinstance(value, int) else f"containerd {value}",
)


def has_volatile_root(pod: Json) -> bool:
    (status,) = pod["status"]["containerStatuses"]
    return is_volatile(status["containerID"])


def run(node: RealNode, namespace: str, name: str, **spec: str) -> Json:
    """Create a pod, and return it once it runs."""
    container = {"name": "c", "image": node.images.busybox, "command": ["sleep", "100000"]}
    metadata = {"name": name, "namespace": namespace}
    node.create_pod({"metadata": metadata, "spec": {"containers": [container], **spec}})
    return node.await_pod(namespace, name, lambda pod: pod["status"]["phase"] == "Running")


def test_containerd_1_starts_beside_no_version_only_without_the_drop_in(nodes: NodePool) -> None:
    runtime = Containerd("1.7", config_version=1)
    with nodes.own(runtime) as node:
        namespace = node.namespace("volatile-")
        run(node, namespace, "older")
        runtime.add_drop_in(Path(DROP_IN).name, printed(*OPTIONS, "-o", "dropin"))
        runtime.stop()
        with pytest.raises(ServerError):
            runtime.start()
        assert "invalid plugin key URI" in runtime.log.read_text()
        runtime.remove_drop_in(Path(DROP_IN).name)
        runtime.start()
        run(node, namespace, "newer")


@RUNTIMES
def test_pod_under_the_class_has_a_volatile_mount_and_older_pods_keep_theirs(
    nodes: NodePool, line: str, main_version: int
) -> None:
    runtime = Containerd(line, config_version=main_version)
    with nodes.own(runtime) as node:
        namespace = node.namespace("volatile-")
        older = run(node, namespace, "older")
        assert not has_volatile_root(older)
        oldest = ("--oldest", runtime.version)
        runtime.add_drop_in(Path(DROP_IN).name, printed(*OPTIONS, *oldest, "-o", "dropin"))
        runtime.stop()
        runtime.start()
        assert Path(DROP_IN).exists(), "containerd imports another directory than the pages say"
        made = yaml.safe_load(printed(*OPTIONS, *oldest, "-o", "runtimeclass"))
        node.cluster.create("/apis/node.k8s.io/v1/runtimeclasses", made)
        labels = {"metadata": {"labels": made["scheduling"]["nodeSelector"]}}
        path = f"/api/v1/nodes/{node.name}"
        assert node.cluster.request("PATCH", path, labels).status == 200

        newer = run(node, namespace, "newer", runtimeClassName=made["metadata"]["name"])
        assert newer["spec"]["nodeSelector"] == {"rootfs": "volatile"}
        assert newer["status"]["podIP"].startswith("10.244.")
        assert has_volatile_root(newer)
        # A running container keeps its mount.
        assert not has_volatile_root(older)
        # Without the drop-in, as after a roll-back.
        runtime.remove_drop_in(Path(DROP_IN).name)
        runtime.stop()
        runtime.start()
        assert not has_volatile_root(run(node, namespace, "later"))
        assert has_volatile_root(newer)
