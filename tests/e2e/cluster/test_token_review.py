"""Who may ask podsettle, as a real API server judges it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.service_accounts import await_grant, connected_as_an_account_with
from webhook.cluster import token_review as access
from webhook.cluster.authorizer import Access
from webhook.cluster.client import ApiServer
from webhook.cluster.token_review import CACHE_TTL_SECONDS, MAX_CACHED_DECISIONS, ClusterAuthorizer

RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def authorizer(
    cluster: KubeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ClusterAuthorizer]:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    async with await ApiServer.connect() as server:
        yield ClusterAuthorizer(server, clock)


def grant(cluster: KubeCluster, namespace: str, path: str, verb: str) -> None:
    """Let the namespace's default account use a path; in force when this returns."""
    name = f"{namespace}-{verb}"
    rules = [{"nonResourceURLs": [path], "verbs": [verb]}]
    cluster.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    cluster.create(f"{RBAC}/clusterrolebindings", binding)
    asked = {"nonResourceAttributes": {"path": path, "verb": verb}}
    await_grant(cluster, f"{namespace}:default", asked)


async def test_a_token_is_good_for_what_was_granted_and_nothing_else(
    cluster: KubeCluster, authorizer: ClusterAuthorizer
) -> None:
    namespace = cluster.namespace("access-")
    grant(cluster, namespace, "/metrics", "get")
    token = cluster.token_for("default", namespace)
    assert (await authorizer.authorize(token, "get", "/metrics")).access is Access.GRANTED
    for verb, path in (("get", "/preview"), ("post", "/metrics"), ("get", "/metrics/x")):
        decision = await authorizer.authorize(token, verb, path)
        assert decision.access is Access.FORBIDDEN
        assert decision.note == f"'system:serviceaccount:{namespace}:default' may not {verb} {path}"


async def test_a_member_of_a_group_gets_what_the_group_may(
    cluster: KubeCluster, authorizer: ClusterAuthorizer
) -> None:
    assert (await authorizer.authorize(cluster.token, "post", "/preview")).access is Access.GRANTED


@pytest.mark.parametrize("token", ["", "nobody's", "é", "x" * 20_000, "a b\r\nc"])
async def test_what_is_no_token_is_nobody(token: str, authorizer: ClusterAuthorizer) -> None:
    decision = await authorizer.authorize(token, "get", "/metrics")
    assert decision.access is Access.UNAUTHENTICATED


async def test_a_token_for_someone_else_is_nobody(
    cluster: KubeCluster, authorizer: ClusterAuthorizer
) -> None:
    token = cluster.token_for("default", audiences=["vault"])
    assert (await authorizer.authorize(token, "get", "/metrics")).access is Access.UNAUTHENTICATED


async def test_a_verdict_is_kept_for_a_moment_only(
    cluster: KubeCluster, authorizer: ClusterAuthorizer, clock: Clock
) -> None:
    namespace = cluster.namespace("access-")
    token = cluster.token_for("default", namespace)
    assert (await authorizer.authorize(token, "get", "/kept")).access is Access.FORBIDDEN
    grant(cluster, namespace, "/kept", "get")
    clock.now += CACHE_TTL_SECONDS - 0.1
    assert (await authorizer.authorize(token, "get", "/kept")).access is Access.FORBIDDEN
    clock.now += 0.2
    assert (await authorizer.authorize(token, "get", "/kept")).access is Access.GRANTED
    cluster.request("DELETE", f"{RBAC}/clusterrolebindings/{namespace}-get")
    clock.now += CACHE_TTL_SECONDS - 0.1
    assert (await authorizer.authorize(token, "get", "/kept")).access is Access.GRANTED


async def test_no_more_is_kept_than_there_is_room_for(
    authorizer: ClusterAuthorizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_CACHED_DECISIONS == 1024
    monkeypatch.setattr(access, "MAX_CACHED_DECISIONS", 3)
    for number in range(5):
        await authorizer.authorize(f"nobody-{number}", "get", "/metrics")
    assert len(authorizer._cache) == 3
    assert not any(b"nobody" in key for key in authorizer._cache)


async def test_without_an_answer_nobody_knows_and_nothing_is_kept(
    cluster: KubeCluster, authorizer: ClusterAuthorizer
) -> None:
    authorizer._server.url = "https://127.0.0.1:1"
    decision = await authorizer.authorize(cluster.token, "get", "/metrics")
    assert decision.access is Access.UNKNOWN
    assert "connection refused" in decision.note
    authorizer._server.url = cluster.url
    assert (await authorizer.authorize(cluster.token, "get", "/metrics")).access is Access.GRANTED


async def test_who_may_not_ask_the_api_server_does_not_know_either(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    """As podsettle itself, where its ClusterRole is not in force."""
    namespace = cluster.namespace("access-")
    async with connected_as_an_account_with(cluster, namespace, [], tmp_path) as server:
        decision = await ClusterAuthorizer(server).authorize(cluster.token, "get", "/metrics")
    assert decision.access is Access.UNKNOWN
    assert 'cannot create resource "tokenreviews"' in decision.note
