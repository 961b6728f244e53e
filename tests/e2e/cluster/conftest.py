"""Fixtures: a cluster that podsettle watches, and connections of podsettle to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.policy_objects import POLICIES, install_crd
from tests.support.registered_webhook import registered
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually
from webhook.cluster.client import ApiServer
from webhook.cluster.kube_source import KubernetesSource


@pytest.fixture(scope="session")
def own_cluster() -> Iterator[KubeCluster]:
    """A cluster for these modules only: their tests stop parts of it, and start them again."""
    with KubeCluster.start() as cluster:
        install_crd(cluster)
        yield cluster


@pytest.fixture(autouse=True)
def _deleted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Delete what a source reads, and what podsettle writes, after each test on `own_cluster`."""
    yield
    if "own_cluster" in request.fixturenames:
        cluster: KubeCluster = request.getfixturevalue("own_cluster")
        classes = "/apis/node.k8s.io/v1/runtimeclasses"
        for path in (POLICIES, "/api/v1/nodes", classes, registered.path):
            answer = cluster.request("DELETE", path)
            assert answer.status == 200, answer.body


@pytest.fixture
async def api(own_cluster: KubeCluster) -> AsyncIterator[ApiServer]:
    """A connection with the rights of a cluster administrator."""
    async with await ApiServer.connect(kubeconfig=str(own_cluster.kubeconfig)) as server:
        yield server


@pytest.fixture
async def server(cluster: KubeCluster) -> AsyncIterator[ApiServer]:
    """The same, to the cluster that all tests share."""
    async with await ApiServer.connect(kubeconfig=str(cluster.kubeconfig)) as connected:
        yield connected


@pytest.fixture
async def source(api: ApiServer) -> AsyncIterator[KubernetesSource]:
    found = KubernetesSource(api)
    async with found.running():
        await eventually(lambda: found.synced and found.view.server_version is not None)
        yield found


@pytest.fixture
async def tcp_proxy(
    own_cluster: KubeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TcpProxy]:
    """A TCP proxy between podsettle and the API server."""
    with TcpProxy.to("127.0.0.1", own_cluster.port) as found:
        url = f"https://127.0.0.1:{found.port}"
        kubeconfig = own_cluster.write_kubeconfig(tmp_path / "kubeconfig", server=url)
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield found
