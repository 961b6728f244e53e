"""The cluster as a real API server tells it, through restarts, cuts and versions that are gone."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.cluster import KubeCluster
from webhook.cluster.api import ApiError, ApiServer, Unreachable
from webhook.cluster.kubernetes import KubernetesSource
from webhook.core.versions import Version

CRD = Path(__file__).parents[2] / "charts/podsettle/crds/podsettle.dev_settlepolicies.yaml"
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
async def source(
    own_cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubernetesSource]:
    monkeypatch.setenv("KUBECONFIG", str(own_cluster.kubeconfig))
    found = KubernetesSource(await ApiServer.connect())
    async with found.running():
        await eventually(lambda: found.synced and found.view.server_version is not None)
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


async def test_what_is_there_is_seen_and_what_changes_follows(
    own_cluster: KubeCluster, source: KubernetesSource
) -> None:
    assert source.view.server_version == Version(1, 36, 2)
    assert source.view.namespace("default") is not None
    assert source.view.namespace("none-such") is None
    name = own_cluster.namespace("seen-", labels={"a": "b"})
    await eventually(lambda: source.view.namespace(name))
    assert source.view.namespace(name).labels["a"] == "b"  # type: ignore[union-attr]
    own_cluster.namespace(name, labels={"a": "c"})
    await eventually(lambda: source.view.namespace(name).labels["a"] == "c")  # type: ignore[union-attr]
    body = {"metadata": {"name": "fast"}, "handler": "fast", "overhead": {"podFixed": {"cpu": "1"}}}
    own_cluster.create("/apis/node.k8s.io/v1/runtimeclasses", body)
    await eventually(lambda: source.view.runtime_class("fast"))
    own_cluster.request("DELETE", "/apis/node.k8s.io/v1/runtimeclasses/fast")
    await eventually(lambda: source.view.runtime_class("fast") is None)


async def test_a_node_counts_with_what_it_runs(
    own_cluster: KubeCluster, source: KubernetesSource
) -> None:
    own_cluster.create("/api/v1/nodes", {"metadata": {"name": "n1"}})
    status = {"status": {"nodeInfo": {"containerRuntimeVersion": "cri-o://1.33.12"}}}
    own_cluster.request("PATCH", "/api/v1/nodes/n1/status", status)
    await eventually(lambda: source.view.nodes.losing_exit_codes)
    own_cluster.request("DELETE", "/api/v1/nodes/n1")
    await eventually(lambda: not source.view.nodes.all)


async def test_a_policy_that_turns_bad_is_reported_and_what_it_said_stays(
    own_cluster: KubeCluster, source: KubernetesSource
) -> None:
    own_cluster.create(POLICIES, policy("edited", priority=1))
    await eventually(lambda: len(source.view.policies) == 1)
    # Past the CRD's checks, as an older CRD or a write to etcd would have it.
    item = source.policies.objects["edited"]
    source.policies.objects["edited"] = type(item)("edited", 2, None, ())
    source._policies_changed()
    assert len(source.view.policies) == 1
    own_cluster.request("DELETE", f"{POLICIES}/edited")
    await eventually(lambda: len(source.view.policies) == 0)


async def test_a_namespace_that_is_too_new_is_fetched(
    own_cluster: KubeCluster, source: KubernetesSource
) -> None:
    name = own_cluster.namespace("new-", labels={"podsettle.dev/policy": "p"})
    found = await source.fetch_namespace(name, 5)
    assert found is not None
    assert found.labels["podsettle.dev/policy"] == "p"
    assert await source.fetch_namespace("none-such", 5) is None


async def test_a_restart_of_the_api_server_is_caught_up_with(
    own_cluster: KubeCluster, source: KubernetesSource
) -> None:
    own_cluster.kill_apiserver()
    await eventually(lambda: not source.namespaces.connected)
    assert source.view.namespace("default") is not None
    own_cluster.start_apiserver()
    name = own_cluster.namespace("after-restart-")
    await eventually(lambda: source.view.namespace(name))
    await eventually(lambda: all(r.connected for r in source.reflectors.values()))


async def test_a_version_that_is_gone_leads_to_a_new_list(
    own_cluster: KubeCluster, source: KubernetesSource
) -> None:
    source.namespaces._version = "1"
    # The watch that runs goes on; the next one asks for a version that nobody remembers.
    own_cluster.kill_apiserver()
    own_cluster.start_apiserver()
    name = own_cluster.namespace("after-gone-")
    await eventually(lambda: source.view.namespace(name))


async def test_nobody_to_ask_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for kubeconfig in (os.devnull, "/none/such"):
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        with pytest.raises(Unreachable, match="no cluster to talk to"):
            await ApiServer.connect()


async def test_a_refusal_is_told_with_its_message(
    own_cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(own_cluster.kubeconfig))
    server = await ApiServer.connect()
    with pytest.raises(ApiError, match='404: namespaces "none" not found'):
        await server.request("GET", "/api/v1/namespaces/none")
    await server.close()


async def test_no_task_and_no_connection_is_left_behind(
    own_cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(own_cluster.kubeconfig))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        source = KubernetesSource(await ApiServer.connect())
        async with source.running():
            await eventually(lambda: source.synced)  # noqa: B023
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1
    await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before + 1)
