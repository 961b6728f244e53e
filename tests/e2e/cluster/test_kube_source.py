"""The view of a real API server, also after restarts, broken watches and expired versions."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

import msgspec
import pytest

from tests.support.factories import policy_document
from tests.support.kube.cluster import KubeCluster
from tests.support.kube.custom_resources import create_crd
from tests.support.policy_objects import POLICIES
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually
from tools.kube_versions import MODULES, chosen, releases
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import Unreachable
from webhook.cluster.kube_source import BURST_INTERVAL_SECONDS, KubernetesSource
from webhook.cluster.reflector import Reflector
from webhook.cluster.source import NamespaceLookup
from webhook.tasks import supervise


async def test_view_contains_all_objects_and_follows_their_changes(
    own_cluster: KubeCluster, source: KubernetesSource
) -> None:
    release = releases(MODULES[chosen()])["kubernetes"]
    assert str(source.view.server_version) == release
    assert source.view.namespace("default") is not None
    assert source.view.namespace("none-such") is None
    name = own_cluster.namespace("seen-", labels={"a": "b"})
    await eventually(lambda: source.view.namespace(name))
    assert source.view.namespace(name).labels["a"] == "b"  # type: ignore[union-attr]
    own_cluster.namespace(name, labels={"a": "c"})
    await eventually(lambda: source.view.namespace(name).labels["a"] == "c")  # type: ignore[union-attr]
    body = {"metadata": {"name": "fast"}, "handler": "fast", "overhead": {"podFixed": {"cpu": "1"}}}
    own_cluster.create("/apis/node.k8s.io/v1/runtimeclasses", body)
    before = source.view.runtime_classes
    await eventually(lambda: "fast" in source.view.runtime_classes)
    # The decision cache compares the old mapping with the new one.
    assert "fast" not in before
    known = source.view.runtime_classes
    own_cluster.namespace("seen-too-")
    await eventually(lambda: any(n.startswith("seen-too-") for n in source.view.namespaces))
    assert source.view.runtime_classes is known
    own_cluster.request("DELETE", "/apis/node.k8s.io/v1/runtimeclasses/fast")
    await eventually(lambda: "fast" not in source.view.runtime_classes)


async def test_source_is_synced_once_view_and_selectors_contain_the_lists(
    own_cluster: KubeCluster, api: ApiServer
) -> None:
    """Written earlier, with empty selectors, the configuration would lose its webhooks."""
    own_cluster.create(POLICIES, policy_document("first"))
    own_cluster.create("/api/v1/nodes", {"metadata": {"name": "first"}})
    body = {"metadata": {"name": "first"}, "handler": "first"}
    own_cluster.create("/apis/node.k8s.io/v1/runtimeclasses", body)
    source = KubernetesSource(api)
    async with source.running(), asyncio.timeout(60):
        while not source.synced:  # noqa: ASYNC110 (checks in each iteration of the loop)
            await asyncio.sleep(0)
        assert set(source.policies_in_force) == {"first"}
        assert set(source.webhook_selectors.by_webhook) == {"cluster.podsettle.dev"}
        assert "first" in source.view.runtime_classes
        assert [node.name for node in source.view.nodes.all] == ["first"]


async def test_nodes_that_join_in_a_row_are_processed_together(
    own_cluster: KubeCluster, source: KubernetesSource
) -> None:
    """To process thousands of nodes for each one that joins would delay reviews."""
    processed = [source.view.nodes]

    def observe() -> None:
        if source.view.nodes is not processed[-1]:
            processed.append(source.view.nodes)

    source.observers.append(observe)
    start = monotonic()
    for number in range(100):
        node = {"metadata": {"name": f"joins-{number}"}}
        await asyncio.to_thread(own_cluster.create, "/api/v1/nodes", node)
    await eventually(lambda: len(source.view.nodes.all) == 100)
    assert len(processed) <= 2 + (monotonic() - start) / BURST_INTERVAL_SECONDS


async def test_new_invalid_policy_does_not_get_the_state_of_a_deleted_one(
    own_cluster: KubeCluster, source: KubernetesSource
) -> None:
    own_cluster.create(POLICIES, policy_document("again"))
    await eventually(lambda: "again" in source.policies_in_force)
    item = source.policies.objects["again"]
    # A new invalid object with this name, as seen after a watch that missed the deletion.
    source.policies.objects["again"] = replace(item, uid="another", policy=None)
    own_cluster.create(POLICIES, policy_document("other"))
    await eventually(lambda: "other" in source.policies_in_force)
    assert "again" not in source.policies_in_force


@pytest.mark.parametrize(
    "name", ["default?x=1", "default/../kube-system", "a\nERROR forged", "A", "-a", "a" * 64, ""]
)
async def test_invalid_namespace_name_is_not_requested(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        pytest.fail("a request was sent")

    monkeypatch.setattr(api, "request", fail)
    source = KubernetesSource(api)
    assert await source.fetch_namespace(name, "10.0.0.1", 5) is NamespaceLookup.MISSING
    assert not source.namespaces.objects


async def test_namespace_that_the_view_lacks_is_fetched(
    own_cluster: KubeCluster, source: KubernetesSource
) -> None:
    name = own_cluster.namespace("new-", labels={"podsettle.dev/policy": "p"})
    assert await source.fetch_namespace(name, "10.0.0.1", 5) is NamespaceLookup.FOUND
    found = source.view.namespace(name)
    assert found is not None
    assert found.labels["podsettle.dev/policy"] == "p"
    lookup = await source.fetch_namespace("none-such", "10.0.0.1", 5)
    assert lookup is NamespaceLookup.MISSING


async def test_concurrent_fetches_of_a_namespace_share_one_request(
    own_cluster: KubeCluster, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[str] = []
    request = api.request

    async def counted(method: str, path: str, **options: Any) -> Any:
        requested.append(path)
        return await request(method, path, **options)

    monkeypatch.setattr(api, "request", counted)
    source = KubernetesSource(api)  # It does not run, as if the watch were late.
    name = own_cluster.namespace("many-")
    fetch = partial(source.fetch_namespace, client="10.0.0.1", seconds=5)
    assert {*await asyncio.gather(*(fetch(name) for _ in range(50)))} == {NamespaceLookup.FOUND}
    assert requested == [f"/api/v1/namespaces/{name}"]
    for _ in range(3):
        assert await fetch("none-such") is NamespaceLookup.MISSING
    assert requested[1:] == ["/api/v1/namespaces/none-such"]
    # The limit of concurrent requests counts no finished ones.
    others = [f"none-{number}" for number in range(20)]
    for other in others:
        assert await fetch(other) is NamespaceLookup.MISSING
    assert requested[2:] == [f"/api/v1/namespaces/{other}" for other in others]


async def test_view_is_up_to_date_after_a_restart_of_the_api_server(
    own_cluster: KubeCluster, source: KubernetesSource
) -> None:
    own_cluster.kill_apiserver()
    await eventually(lambda: source.namespaces.problem)
    assert source.view.namespace("default") is not None
    own_cluster.start_apiserver()
    name = own_cluster.namespace("after-restart-")
    await eventually(lambda: source.view.namespace(name))
    await eventually(lambda: not any(r.problem for r in source.reflectors.values()))


async def test_expired_resource_version_leads_to_a_new_list(
    own_cluster: KubeCluster, source: KubernetesSource, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    # The watch of namespaces gets no event of this change, so it stays at an earlier version. After
    # the restart, the API server's watch cache begins at a later one.
    own_cluster.create(POLICIES, policy_document("later"))
    own_cluster.request("DELETE", f"{POLICIES}/later")
    own_cluster.kill_apiserver()
    own_cluster.start_apiserver()
    name = own_cluster.namespace("after-gone-")
    await eventually(lambda: source.view.namespace(name))
    assert "watch /api/v1/namespaces: the resource version has expired" in caplog.text


async def test_object_that_cannot_be_decoded_does_not_hide_the_others(
    own_cluster: KubeCluster, api: ApiServer
) -> None:
    def read(item: msgspec.Raw) -> str:
        metadata = msgspec.json.decode(item)["metadata"]
        if metadata.get("labels", {}).get("bad"):
            raise msgspec.ValidationError("bad")
        return str(metadata["name"])

    bad = own_cluster.namespace("bad-", labels={"bad": "true"})
    namespaces = Reflector(api, "/api/v1/namespaces", read, lambda: None)
    async with supervise(namespaces.run):
        await eventually(lambda: "default" in namespaces.objects)
        later = [own_cluster.namespace("bad-", labels={"bad": "true"}), own_cluster.namespace("a-")]
        await eventually(lambda: later[1] in namespaces.objects)
    assert not {bad, later[0]} & namespaces.objects.keys()


async def test_in_cluster_first_ignores_the_kubeconfig(
    own_cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(own_cluster.kubeconfig))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    # There is no service account here, and the kubeconfig does not replace it.
    with pytest.raises(Unreachable, match="no cluster found"):
        await ApiServer.connect(in_cluster_first=True)


async def test_no_task_and_no_connection_remains(
    own_cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(own_cluster.kubeconfig))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with await ApiServer.connect() as server:
            source = KubernetesSource(server)
            async with source.running():
                await eventually(lambda: source.synced)  # noqa: B023
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1
    await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before + 1)


async def test_watches_of_a_silent_api_server_end_with_their_source(
    own_cluster: KubeCluster, tcp_proxy: TcpProxy
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with await ApiServer.connect() as server:
        source = KubernetesSource(server)
        async with source.running():
            await eventually(lambda: source.synced)
            # After a list, a reflector is connected too. Only a watch shows later objects.
            counts = {kind: len(r.objects) for kind, r in source.reflectors.items()}
            name = own_cluster.namespace("silent-")
            own_cluster.create("/api/v1/nodes", {"metadata": {"name": name}})
            runtime_class = {"metadata": {"name": name}, "handler": name}
            own_cluster.create("/apis/node.k8s.io/v1/runtimeclasses", runtime_class)
            own_cluster.create(POLICIES, policy_document(name))
            await eventually(
                lambda: all(len(r.objects) > counts[k] for k, r in source.reflectors.items())
            )
            # Nothing answers the end of TLS any more.
            tcp_proxy.freeze()
        ends = len(os.listdir("/proc/self/fd"))
    closed = len(os.listdir("/proc/self/fd"))
    assert closed < ends
    # The proxy holds two sockets of each connection.
    assert closed - before <= 2 * tcp_proxy.accepted


async def test_view_is_up_to_date_after_a_restart_of_etcd(
    own_cluster: KubeCluster, source: KubernetesSource
) -> None:
    own_cluster.stop_etcd()
    own_cluster.start_etcd()
    name = own_cluster.namespace("after-etcd-")
    await eventually(lambda: source.view.namespace(name))


async def test_broken_watches_resume(own_cluster: KubeCluster, tcp_proxy: TcpProxy) -> None:
    async with await ApiServer.connect() as server:
        source = KubernetesSource(server)
        async with source.running():
            await eventually(lambda: source.synced)
            for _ in range(3):
                tcp_proxy.cut()
                name = own_cluster.namespace("after-cut-")
                await eventually(lambda: source.view.namespace(name))  # noqa: B023
            await eventually(lambda: not any(r.problem for r in source.reflectors.values()))


async def test_missing_crd_is_named_with_the_command_that_installs_it(
    own_cluster: KubeCluster, api: ApiServer
) -> None:
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/settlepolicies.podsettle.dev"
    document = own_cluster.request("GET", crd).body
    own_cluster.request("DELETE", crd)
    try:
        found = KubernetesSource(api)
        async with found.running():
            await eventually(lambda: "404" in found.policies.problem)
        checks = {check.name: check.note for check in found.checks()}
        assert checks["settlepolicies"] == (
            "404: 404 page not found: the CRD is not installed; run: "
            "kubectl apply --server-side -f charts/podsettle/crds"
        )
    finally:
        metadata = {"name": document["metadata"]["name"]}
        create_crd(own_cluster, {**document, "metadata": metadata, "status": None})
