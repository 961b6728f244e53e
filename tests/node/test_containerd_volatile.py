"""`podsettle node-config containerd --volatile` in a containerd that runs pods.

A pod that runs shows that the drop-in leaves the CRI tables of the main file as they are: without
them containerd would know neither the pause image nor the CNI plugins of this node.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

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
    ("node", "main_version"),
    # 1.7 first, because the test before this one leaves its node running.
    [("1.7", 2), ("2.3", 4), ("2.4", 2), ("2.4", 3), ("2.4", 4)],
    indirect=["node"],
    ids=lambda value: f"version {value}" if isinstance(value, int) else f"containerd {value}",
)


@pytest.fixture(scope="module")
def node(nodes: NodePool, request: pytest.FixtureRequest) -> Iterator[RealNode]:
    """A node with containerd of a release line."""
    with nodes.own(Containerd(request.param)) as own:
        yield own


@contextmanager
def containerd_with(node: RealNode, main_version: int) -> Iterator[Containerd]:
    """Run the node's containerd with a main file of a version."""
    line = cast(Containerd, node.runtime).line
    runtime = Containerd(line, config_version=main_version)
    node.runtime.stop()
    try:
        runtime.start()
        yield runtime
    finally:
        runtime.stop()
        node.runtime.start()


def has_volatile_root(pod: Json) -> bool:
    (status,) = pod["status"]["containerStatuses"]
    return is_volatile(status["containerID"])


def run(node: RealNode, namespace: str, name: str, **spec: str) -> Json:
    """Create a pod, and return it once it runs."""
    container = {"name": "c", "image": node.images.busybox, "command": ["sleep", "100000"]}
    metadata = {"name": name, "namespace": namespace}
    node.create_pod({"metadata": metadata, "spec": {"containers": [container], **spec}})
    return node.await_pod(namespace, name, lambda pod: pod["status"]["phase"] == "Running")


@pytest.mark.parametrize("node", ["1.7"], indirect=True, ids="containerd {}".format)
def test_containerd_1_starts_beside_no_version_only_without_the_drop_in(
    node: RealNode, namespace: str
) -> None:
    with containerd_with(node, main_version=1) as runtime:
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
    node: RealNode, namespace: str, main_version: int
) -> None:
    with containerd_with(node, main_version) as runtime:
        older = run(node, namespace, "older")
        assert not has_volatile_root(older)
        oldest = ("--oldest", runtime.version)
        runtime.add_drop_in(Path(DROP_IN).name, printed(*OPTIONS, *oldest, "-o", "dropin"))
        runtime.stop()
        runtime.start()
        assert Path(DROP_IN).exists(), "containerd imports another directory than the pages say"
        made = yaml.safe_load(printed(*OPTIONS, *oldest, "-o", "runtimeclass"))
        classes = "/apis/node.k8s.io/v1/runtimeclasses"
        # It is the same for each version of the main file, so an earlier test may have made it.
        if node.cluster.request("POST", classes, made).status != 201:
            found = node.cluster.request("GET", f"{classes}/{made['metadata']['name']}").body
            assert made.items() <= {**found, "metadata": made["metadata"]}.items()
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
