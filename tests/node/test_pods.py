"""Tests of the node itself: a pod runs, reaches the API server, and has logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.node.containerd import Containerd
from tests.support.node.node import RealNode
from tests.support.node.runtime import Runtime
from tests.support.node.shim import shim_process
from tools.build import containerd


@pytest.fixture(scope="module", params=["2.4", "1.7"], ids="containerd {}".format)
def node(shared_node: Callable[[Runtime], RealNode], request: pytest.FixtureRequest) -> RealNode:
    return shared_node(Containerd(request.param))


def pod(node: RealNode, namespace: str, script: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": node.images.busybox, "command": ["sh", "-c", script]}
    return {
        "metadata": {"name": "pod", "namespace": namespace},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def test_pod_ends_with_the_exit_code_and_log_of_its_container(
    node: RealNode, namespace: str
) -> None:
    finished = node.run_pod(pod(node, namespace, "echo built; exit 7"))
    (status,) = finished["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 7
    assert node.logs(namespace, "pod", "main") == "built\n"
    assert node.node_info()["containerRuntimeVersion"].endswith(node.runtime.version)


def test_pod_reaches_services_by_address_and_by_name(node: RealNode, namespace: str) -> None:
    script = """\
nc -w 10 "$KUBERNETES_SERVICE_HOST" 443 </dev/null &&
nslookup kubernetes.default.svc.cluster.local
"""
    finished = node.run_pod(pod(node, namespace, script))
    assert finished["status"]["phase"] == "Succeeded", node.logs(namespace, "pod", "main")
    assert "10.0.0.1" in node.logs(namespace, "pod", "main")


def test_shim_of_a_pod_is_of_the_same_release_as_containerd(node: RealNode, namespace: str) -> None:
    """A package of Debian may have put another shim on PATH."""
    node.create_pod(pod(node, namespace, "sleep 100000"))
    found = node.await_pod(namespace, "pod", lambda pod: pod["status"]["phase"] == "Running")
    (status,) = found["status"]["containerStatuses"]
    process = shim_process(status["containerID"])
    shim = Path(f"/proc/{process}/exe").resolve()
    assert isinstance(node.runtime, Containerd)
    assert shim == containerd(node.runtime.line).with_name("containerd-shim-runc-v2")
