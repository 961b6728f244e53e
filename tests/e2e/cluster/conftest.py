"""A cluster for each module of tests, which they may stop, and podsettle's view of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.support.kube.cluster import KubeCluster
from tests.support.tcp_proxy import Cable
from webhook.cluster.client import ApiServer
from webhook.cluster.kube_source import KubernetesSource

CRD = Path(__file__).parents[3] / "charts/podsettle/crds/podsettle.dev_settlepolicies.yaml"
POLICIES = "/apis/podsettle.dev/v1alpha1/settlepolicies"


@pytest.fixture(scope="module")
def own_cluster() -> Any:
    """A cluster that tests may stop."""
    with KubeCluster.start() as cluster:
        with_policies(cluster)
        yield cluster


def with_policies(cluster: KubeCluster) -> None:
    crd = yaml.safe_load(CRD.read_text())
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    deadline = time.monotonic() + 30
    while cluster.request("GET", POLICIES).status != 200:
        assert time.monotonic() < deadline, "the CRD is not served"


@pytest.fixture
async def api(
    own_cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ApiServer]:
    """A connection that may do everything."""
    monkeypatch.setenv("KUBECONFIG", str(own_cluster.kubeconfig))
    async with await ApiServer.connect() as server:
        yield server


@pytest.fixture
async def source(api: ApiServer) -> AsyncIterator[KubernetesSource]:
    found = KubernetesSource(api)
    async with found.running():
        await eventually(lambda: found.synced and found.view.server_version is not None)
        yield found


@pytest.fixture
async def cable(
    own_cluster: KubeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cable]:
    """What lies between podsettle and the API server."""
    configuration = yaml.safe_load(own_cluster.kubeconfig.read_text())
    far = urlsplit(configuration["clusters"][0]["cluster"]["server"])
    async with Cable(far.hostname or "", far.port or 0).plugged() as found:
        configuration["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{found.port}"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(configuration))
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield found


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.02)


def policy(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "podsettle.dev/v1alpha1",
        "kind": "SettlePolicy",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "remedies": {"postInitSleep": {}}} | spec,
    }
