"""Fixtures: a namespace, a running `podsettle` and a fake kubelet, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.fake_kubelet import Kubelet
from tests.support.kube.cluster import KubeCluster
from tests.support.kubelet_status import Command, Run, running


@pytest.fixture
def namespace(cluster: KubeCluster) -> str:
    return cluster.namespace("client-")


@pytest.fixture
def run(cluster: KubeCluster, namespace: str, tmp_path: Path) -> Run:
    """`podsettle ARGUMENTS` in the test's namespace, in the background."""

    def start(*arguments: str) -> AbstractContextManager[Command]:
        return running(cluster.kubeconfig, tmp_path, *arguments, "-n", namespace)

    return start


@pytest.fixture
def kubelet(cluster: KubeCluster) -> Iterator[Kubelet]:
    """The kubelet of a Node."""
    with Kubelet.listening() as listening:
        cluster.create("/api/v1/nodes", {"metadata": {"name": listening.node}})
        path = f"/api/v1/nodes/{listening.node}"
        answer = cluster.request("PATCH", f"{path}/status", {"status": listening.node_status})
        assert answer.status == 200, answer.body
        yield listening
        cluster.request("DELETE", path)
