"""Authorization of clients by a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.service_accounts import connected_as_an_account_with, grant
from webhook.cluster.access_decision import Access
from webhook.cluster.client import ApiServer
from webhook.cluster.token_review import CACHE_TTL_SECONDS, MAX_CACHED_DECISIONS, ClusterAuthorizer

CLIENT = "10.0.0.1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authorizer(server: ApiServer, clock: Clock) -> ClusterAuthorizer:
    return ClusterAuthorizer(server, clock)


async def test_token_gives_access_to_granted_paths_only(
    cluster: KubeCluster, authorizer: ClusterAuthorizer
) -> None:
    namespace = cluster.namespace("authorize-")
    grant(cluster, f"{namespace}:default", [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
    token = cluster.token_for("default", namespace)
    assert (await authorizer.authorize(token, "get", "/metrics", CLIENT)).access is Access.GRANTED
    for verb, path in (("get", "/preview"), ("post", "/metrics"), ("get", "/metrics/x")):
        decision = await authorizer.authorize(token, verb, path, CLIENT)
        assert decision.access is Access.FORBIDDEN
        assert decision.note == f"'system:serviceaccount:{namespace}:default' may not {verb} {path}"


@pytest.mark.parametrize("token", ["", "invalid", "é", "x" * 20_000, "a b\r\nc"])
async def test_malformed_or_invalid_token_is_unauthenticated(
    token: str, authorizer: ClusterAuthorizer
) -> None:
    decision = await authorizer.authorize(token, "get", "/metrics", CLIENT)
    assert decision.access is Access.UNAUTHENTICATED


async def test_decision_is_cached_until_its_ttl_ends(
    cluster: KubeCluster, authorizer: ClusterAuthorizer, clock: Clock
) -> None:
    namespace = cluster.namespace("authorize-")
    token = cluster.token_for("default", namespace)
    assert (await authorizer.authorize(token, "get", "/cached", CLIENT)).access is Access.FORBIDDEN
    grant(cluster, f"{namespace}:default", [{"nonResourceURLs": ["/cached"], "verbs": ["get"]}])
    clock.now += CACHE_TTL_SECONDS - 0.1
    assert (await authorizer.authorize(token, "get", "/cached", CLIENT)).access is Access.FORBIDDEN
    clock.now += 0.2
    assert (await authorizer.authorize(token, "get", "/cached", CLIENT)).access is Access.GRANTED
    cluster.request("DELETE", f"{RBAC}/clusterrolebindings/{namespace}-default")
    clock.now += CACHE_TTL_SECONDS - 0.1
    assert (await authorizer.authorize(token, "get", "/cached", CLIENT)).access is Access.GRANTED


async def test_cache_is_bounded_and_contains_no_tokens(server: ApiServer) -> None:
    assert MAX_CACHED_DECISIONS == 1024
    authorizer = ClusterAuthorizer(server, Clock(), max_cached=3)
    tokens = [f"some-token-{number}" for number in range(5)]
    for token in tokens:
        await authorizer.authorize(token, "get", "/metrics", CLIENT)
    assert "some-token" not in repr(vars(authorizer))
    # While the API server is unreachable, only cached decisions are known.
    server.url = "https://127.0.0.1:1"
    decisions = [await authorizer.authorize(token, "get", "/metrics", CLIENT) for token in tokens]
    assert [decision.access for decision in decisions] == [
        *[Access.UNKNOWN] * 2,
        *[Access.UNAUTHENTICATED] * 3,
    ]


async def test_unreachable_api_server_gives_unknown_and_nothing_is_cached(
    cluster: KubeCluster, server: ApiServer, authorizer: ClusterAuthorizer
) -> None:
    server.url = "https://127.0.0.1:1"
    decision = await authorizer.authorize(cluster.token, "get", "/metrics", CLIENT)
    assert decision.access is Access.UNKNOWN
    assert "connection refused" in decision.note
    server.url = cluster.url
    assert (
        await authorizer.authorize(cluster.token, "get", "/metrics", CLIENT)
    ).access is Access.GRANTED


async def test_missing_right_to_create_token_reviews_gives_unknown(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    """podsettle itself is such a client while its ClusterRole is missing."""
    namespace = cluster.namespace("authorize-")
    async with connected_as_an_account_with(cluster, namespace, [], tmp_path) as server:
        decision = await ClusterAuthorizer(server).authorize(
            cluster.token, "get", "/metrics", CLIENT
        )
    assert decision.access is Access.UNKNOWN
    assert 'cannot create resource "tokenreviews"' in decision.note
