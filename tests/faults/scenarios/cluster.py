"""Clusters that grow quickly."""

from __future__ import annotations

from tests.faults.rig import Rig
from tests.faults.scenario import Steps, scenario
from tests.support.kube.cluster import Json

_NAMESPACES = 10_000
_NODES = 5_000
_IMAGES_OF_A_NODE = 50
"""As many as the kubelet reports."""


@scenario("10,000 namespaces are created, in a minute if the machine can", seconds=0)
def namespaces(rig: Rig) -> Steps:
    """Create the namespaces, which stay."""
    yield

    def create(number: int) -> None:
        metadata = {"name": f"many-{number}", "labels": {"team": str(number % 100)}}
        rig.request("POST", "/api/v1/namespaces", {"metadata": metadata})

    rig.in_parallel(create, _NAMESPACES, seconds=60)
    yield


@scenario("5,000 nodes join the cluster, and are listed again by both replicas", seconds=0)
def nodes(rig: Rig) -> Steps:
    """Create the nodes, and let each watch expire."""
    yield
    rig.in_parallel(lambda number: rig.request("POST", "/api/v1/nodes", _node(number)), _NODES)
    rig.api.switch("gone")
    rig.api.switch("pass")
    yield


def _node(number: int) -> Json:
    """Return a node of some kilobytes, as one with its images is."""
    name = f"registry.example/team/service-{number % 50}"
    images = [
        {"names": [f"{name}-{image}:1", f"{name}-{image}@sha256:{image:064}"], "sizeBytes": 1}
        for image in range(_IMAGES_OF_A_NODE)
    ]
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": f"node-{number}"}
    runtime = {"containerRuntimeVersion": "cri-o://1.33.13", "kubeletVersion": "v1.33.1"}
    info = {
        **runtime,
        **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"), "x"),
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
    return {
        "metadata": {"name": f"node-{number}", "labels": labels},
        "status": {"nodeInfo": info, "images": images},
    }
