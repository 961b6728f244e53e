"""The view of a cluster that is read once, with all rights and with few."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.factories import policy_document
from tests.support.kube.cluster import KubeCluster
from tests.support.live_cluster import account_with
from tests.support.policy_objects import POLICIES, install_crd
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.rights import Right, access_to
from webhook.cluster.view_reader import ReadView, read_view, unread_note

pytestmark = pytest.mark.slow

LIST_PODS = Right("list", "", "pods")
PODS_IN_CI = Right("list", "", "pods", "ci")


async def read(kubeconfig: Path, *namespaces: str) -> ReadView:
    async with await ApiServer.connect(kubeconfig=str(kubeconfig)) as server:
        return await read_view(server, namespaces=namespaces)


async def test_administrator_reads_every_kind(live_cluster: KubeCluster) -> None:
    live = await read(live_cluster.kubeconfig)
    assert live.unread == ()
    assert [policy.metadata.name for policy in live.view.policies.documents] == ["in-cluster"]
    # Tests that share the cluster may have planted others.
    assert {node.name for node in live.view.nodes.all} >= {"worker-1", "worker-2"}
    namespace = live.view.namespace("ci")
    assert namespace is not None
    assert namespace.labels["team"] == "build"
    assert live.view.namespace("no-such") is None
    assert live.view.server_version is not None
    age = datetime.now(UTC) - live.created["in-cluster"]
    assert timedelta(minutes=-1) < age < timedelta(hours=1)


async def test_user_without_rights_learns_which_right_each_kind_needs(
    live_cluster: KubeCluster, tmp_path: Path
) -> None:
    kubeconfig, _ = account_with(live_cluster, tmp_path)
    live = await read(kubeconfig, "ci")
    assert {each.resource: str(each.right) for each in live.unread} == {
        "settlepolicies": "list settlepolicies",
        "namespaces": "list namespaces",
        "runtimeclasses": "list runtimeclasses",
        "nodes": "list nodes",
    }
    assert live.view.nodes.all == ()
    assert not live.view.contains_namespace("ci")
    nodes = next(each for each in live.unread if each.resource == "nodes")
    assert unread_note(nodes) == (
        "nodes were not read: it needs the right to list nodes; remedies with `when: NodesNeedIt` "
        "are treated as needed"
    )
    assert nodes.right.command == (("kubectl", "auth", "can-i", "list", "nodes"),)


async def test_namespaces_are_read_by_name_if_they_cannot_be_listed(
    live_cluster: KubeCluster, tmp_path: Path
) -> None:
    rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
    kubeconfig, _ = account_with(live_cluster, tmp_path, rule)
    live = await read(kubeconfig, "ci", "no-such", "../nodes")
    assert "namespaces" not in {each.resource for each in live.unread}
    assert set(live.view.namespaces) == {"ci"}
    assert "namespaces" in {each.resource for each in (await read(kubeconfig)).unread}


async def test_cluster_without_the_crd_and_with_one_that_accepts_any_policy() -> None:
    with KubeCluster.start() as cluster:
        live = await read(cluster.kubeconfig)
        (unread,) = live.unread
        assert (unread.resource, unread.why) == ("settlepolicies", "podsettle is not installed")
        assert not unread.is_denied
        # The schema of this release would refuse the invalid policy.
        any_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        install_crd(cluster, schema={"openAPIV3Schema": any_object})
        cluster.create(POLICIES, policy_document("good"))
        cluster.create(POLICIES, policy_document("broken", remedies={"noSuch": {}}))
        live = await read(cluster.kubeconfig)
    assert [each.metadata.name for each in live.view.policies.documents] == ["good"]
    (problem,) = live.problems
    assert (problem.source, problem.path) == ("SettlePolicy/broken", "spec.remedies.noSuch")
    assert set(live.created) == {"good", "broken"}


async def test_unknown_user_and_stopped_server_are_errors(
    live_cluster: KubeCluster, tmp_path: Path
) -> None:
    kubeconfig = live_cluster.write_kubeconfig(tmp_path / "kubeconfig", {"token": "unknown"})
    with pytest.raises(ApiError, match="401"):
        await read(kubeconfig)
    live_cluster.write_kubeconfig(kubeconfig, server="https://127.0.0.1:1")
    with pytest.raises(Unreachable, match="connection refused"):
        await read(kubeconfig)


async def test_api_server_says_which_rights_the_user_has(
    live_cluster: KubeCluster, tmp_path: Path
) -> None:
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    kubeconfig, _ = account_with(live_cluster, tmp_path, rule)
    rights = [Right("list", "", "nodes"), LIST_PODS, PODS_IN_CI, Right("get", "", "/metrics")]
    async with await ApiServer.connect(kubeconfig=str(kubeconfig)) as server:
        answers = [await access_to(server, right) for right in rights]
    assert answers == ["allowed", "denied", "denied", "denied"]


async def test_raw_answer_has_the_headers_and_the_body_of_an_error(
    live_cluster: KubeCluster,
) -> None:
    async with await ApiServer.connect(kubeconfig=str(live_cluster.kubeconfig)) as server:
        ready = await server.fetch("GET", "/readyz?verbose")
        missing = await server.fetch("GET", "/api/v1/namespaces/no-such")
        with pytest.raises(Unreachable, match="more than 10 bytes"):
            await server.fetch("GET", "/readyz?verbose", max_bytes=10)
    assert (ready.status, b"[+]etcd ok" in ready.content) == (200, True)
    assert "Date" in ready.headers
    assert (missing.status, b"NotFound" in missing.content) == (404, True)
