"""Tests of large volumes on CRI-O with SELinux, under a kubelet that gives up on a call.

Like the volumes of the public report "CreateContainerError - Openshift Error", these have too many
files for CRI-O to visit them before the kubelet's deadline. They are those of `make node-in-vm`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.factories import Json, policy_document
from tests.support.node.crio import Crio
from tests.support.node.node import RealNode
from tests.support.node.node_pool import NodePool
from tests.support.node.optional_builds import crio_or_skip
from tests.support.node.release import install_podsettle
from tests.support.node_config import CRIO, printed, selinux_drop_in
from tests.support.policy_objects import POLICIES
from tests.support.vm.image import SIZES, VOLUMES
from tests.support.waiting import await_that
from tools.crio import AFFECTED
from webhook.node_config.crio import DROP_IN

# The virtual machine's volumes have fewer files than those of the report. The kubelet asks CRI-O to
# relabel a volume for each of its mounts, so CRI-O visits 30 million files.
MOUNTS = 300
# The kubelet's deadline is two minutes (`runtimeRequestTimeout`).
WAIT_SECONDS = 600.0
LEVEL = "s0:c123,c456"
LARGE = max(SIZES)
UNSETTLED, SETTLED = "unsettled", "settled"
VOLUME_OF = {UNSETTLED: f"plain-{LARGE}", SETTLED: f"settled-{LARGE}"}
RETRY = ("name is reserved", "Currently at stage container volume configuration")
_SELINUX = Path("/sys/fs/selinux")


@pytest.fixture(scope="module", autouse=True)
def selinux_mount() -> Iterator[None]:
    """SELinux in the namespaces of the node, where /sys is mounted anew."""
    if not (_SELINUX.is_dir() and VOLUMES.is_dir()):
        pytest.skip("the machine has no SELinux, or no volumes: run make node-in-vm")
    subprocess.run(["mount", "-t", "selinuxfs", "selinuxfs", str(_SELINUX)], check=True)
    yield
    subprocess.run(["umount", str(_SELINUX)], check=True)


@pytest.fixture(scope="module")
def node(nodes: NodePool) -> Iterator[RealNode]:
    """A node that is configured as the report's page says, and podsettle with the page's policy."""
    runtime = Crio(crio_or_skip(AFFECTED))
    runtime.add_drop_in("01-selinux.conf", "[crio.runtime]\nselinux = true\n")
    drop_in = selinux_drop_in(runtime.default_handler, "--oldest", AFFECTED)
    runtime.add_drop_in(Path(DROP_IN).name, drop_in)
    with nodes.own(runtime) as own:
        runtime_class = yaml.safe_load(printed(*CRIO, "-o", "runtimeclass"))
        own.cluster.create("/apis/node.k8s.io/v1/runtimeclasses", runtime_class)
        install_podsettle(own)
        labels = {"storage": "large"}
        remedy = {"runtimeClassName": runtime_class["metadata"]["name"]}
        policy = policy_document(
            "large-volumes",
            remedies={"skipSELinuxRelabel": remedy},
            namespaceSelector={"matchLabels": labels},
        )
        own.cluster.create(POLICIES, policy)
        own.namespace(UNSETTLED)
        own.namespace(SETTLED, labels)
        yield own
        # CRI-O stops only when it has visited all files of the unsettled pod.
        runtime.kill()


def claim(node: RealNode, namespace: str) -> None:
    """Create a claim that is bound to a volume of the machine, whose files have the right label."""
    path = VOLUMES / VOLUME_OF[namespace]
    label = f"system_u:object_r:container_file_t:{LEVEL}"
    subprocess.run(["chcon", "--recursive", label, str(path)], check=True)
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": path.name},
        "spec": {
            "capacity": size,
            "accessModes": modes,
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            "claimRef": {"namespace": namespace, "name": "data"},
        },
    }
    claimed = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": namespace},
        "spec": {
            "accessModes": modes,
            "resources": {"requests": size},
            "storageClassName": "",
            "volumeName": path.name,
        },
    }
    node.cluster.create("/api/v1/persistentvolumes", volume)
    node.cluster.create(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claimed)


def pod_with_claim(node: RealNode, namespace: str) -> Json:
    """Return a pod as its author writes it."""
    container = {
        "name": "main",
        "image": node.images.busybox,
        "command": ["sleep", "1000000"],
        "volumeMounts": [
            {"name": "data", "mountPath": f"/data-{number}"} for number in range(MOUNTS)
        ],
    }
    return {
        "metadata": {"name": "pod", "namespace": namespace},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"seLinuxOptions": {"level": LEVEL}},
            "containers": [container],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }


def failures(node: RealNode, namespace: str) -> str:
    """Return the messages of all events about a container that did not start."""
    path = f"/api/v1/namespaces/{namespace}/events?fieldSelector=reason=Failed"
    items = node.cluster.request("GET", path).body["items"]
    return "\n".join(each["message"] for each in items)


def is_running(pod: Json) -> bool:
    """Whether the pod's containers have started."""
    return bool(pod["status"].get("phase") == "Running")


def has_create_container_error(pod: Json) -> bool:
    """Whether the kubelet says that it cannot create the pod's container."""
    states = (each["state"] for each in pod["status"].get("containerStatuses", ()))
    return any(each.get("waiting", {}).get("reason") == "CreateContainerError" for each in states)


def test_settled_pod_starts_beside_one_whose_volume_cannot_be_visited_before_the_deadline(
    node: RealNode,
) -> None:
    for namespace in (UNSETTLED, SETTLED):
        claim(node, namespace)
    probe = pod_with_claim(node, SETTLED)
    await_that(
        lambda: node.cluster.create_pod(probe, dry_run=True).body["spec"].get("runtimeClassName"),
        "podsettle settles pods",
    )
    node.create_pod(pod_with_claim(node, UNSETTLED))
    node.await_pod(UNSETTLED, "pod", has_create_container_error, WAIT_SECONDS)
    assert "context deadline exceeded" in failures(node, UNSETTLED)
    # An event has these too only if CRI-O's answer comes before the kubelet's deadline.
    await_that(
        lambda: all(each in node.runtime.log.read_text() for each in RETRY),
        "a retry waits for the call before it",
    )

    node.create_pod(pod_with_claim(node, SETTLED))
    node.await_pod(SETTLED, "pod", is_running)
    assert failures(node, SETTLED) == ""
