"""The reader of pull secrets on a real API server."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.support.helm import named
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.service_accounts import connected_as_an_account_with
from webhook.cluster.client import ApiServer
from webhook.cluster.pull_secrets import ClusterPullSecrets
from webhook.core.pull_secrets import DOCKER_CFG, DOCKER_CONFIG_JSON, PullSecret

AUTHS = json.dumps({"auths": {"quay.io": {"auth": "bWU6eA=="}}}).encode()


@pytest.fixture
def secrets(server: ApiServer) -> ClusterPullSecrets:
    return ClusterPullSecrets(server)


def create(cluster: KubeCluster, namespace: str, name: str, kind: str, **data: bytes) -> None:
    keys = {DOCKER_CONFIG_JSON: ".dockerconfigjson", DOCKER_CFG: ".dockercfg"}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    if kind in keys:
        encoded = {keys[kind]: encoded["value"]}
    body: Json = {"metadata": {"name": name}, "type": kind, "data": encoded}
    cluster.create(f"/api/v1/namespaces/{namespace}/secrets", body)


async def test_secrets_of_both_types_are_read_in_the_order_of_the_pod(
    cluster: KubeCluster, secrets: ClusterPullSecrets
) -> None:
    namespace = cluster.namespace("pull-")
    create(cluster, namespace, "new", DOCKER_CONFIG_JSON, value=AUTHS)
    create(cluster, namespace, "old", DOCKER_CFG, value=b'{"quay.io": {}}')
    create(cluster, namespace, "opaque", "Opaque", password=b"hidden")
    found = await secrets.read(namespace, ("old", "new", "opaque", "old"), "default")
    assert found == (
        PullSecret("old", DOCKER_CFG, b'{"quay.io": {}}'),
        PullSecret("new", DOCKER_CONFIG_JSON, AUTHS),
        PullSecret("opaque"),
    )


async def test_pod_without_secrets_uses_those_of_its_service_account(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    """With the rights that the chart grants, and no others."""
    namespace = cluster.namespace("pull-", service_accounts=["default", "builder"])
    create(cluster, namespace, "pull", DOCKER_CONFIG_JSON, value=AUTHS)
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/builder"
    cluster.request("PATCH", account, {"imagePullSecrets": [{"name": "pull"}]})
    pulled = (PullSecret("pull", DOCKER_CONFIG_JSON, AUTHS),)
    rules = named("ClusterRole", "settle-pull-secrets", "everything")["rules"]
    async with connected_as_an_account_with(cluster, namespace, rules, tmp_path) as server:
        secrets = ClusterPullSecrets(server)
        assert await secrets.read(namespace, (), "builder") == pulled
        assert await secrets.read(namespace, (), "default") == ()
        assert [s.name for s in await secrets.read(namespace, ("other",), "builder")] == ["other"]


async def test_missing_secret_or_account_is_a_problem(
    cluster: KubeCluster, secrets: ClusterPullSecrets
) -> None:
    namespace = cluster.namespace("pull-")
    assert await secrets.read(namespace, ("none",), "default") == (
        PullSecret("none", problem="does not exist"),
    )
    assert await secrets.read(namespace, (), "none") == (
        PullSecret("", problem="service account 'none' does not exist"),
    )


async def test_secrets_beyond_the_limit_are_one_problem(
    secrets: ClusterPullSecrets,
) -> None:
    many = await secrets.read("default", tuple(f"s{n}" for n in range(1000)), "default")
    assert [s.name for s in many] == [*(f"s{n}" for n in range(20)), ""]
    assert many[-1].problem == "pull secrets after the first 20 are not read"


async def test_secret_that_exceeds_the_byte_limit_of_the_pod_is_a_problem(
    cluster: KubeCluster, secrets: ClusterPullSecrets
) -> None:
    namespace = cluster.namespace("pull-")
    long = json.dumps({"auths": {}, "x": "x" * 600_000}).encode()
    for name, content in {"first": long, "second": long, "third": AUTHS}.items():
        create(cluster, namespace, name, DOCKER_CONFIG_JSON, value=content)
    assert await secrets.read(namespace, ("first", "second", "third"), "default") == (
        PullSecret("first", DOCKER_CONFIG_JSON, long),
        PullSecret("second", problem="is not read: podsettle reads 1 MiB of the secrets of a pod"),
        PullSecret("third", DOCKER_CONFIG_JSON, AUTHS),
    )


@pytest.mark.parametrize("name", ["..", "../../nodes", "a/b", "A", "", "a?x=y", "a#", "a%2f", "é"])
async def test_invalid_name_is_not_requested(name: str, secrets: ClusterPullSecrets) -> None:
    """Webhooks run before validation, so the name could otherwise change the path."""
    problem = "is not a valid name of an object"
    assert await secrets.read("default", (name,), "default") == (PullSecret(name, problem=problem),)
    assert await secrets.read(name, ("a",), "default") == (PullSecret("a", problem=problem),)
    (account,) = await secrets.read("default", (), name)
    assert account.problem == f"service account {name!r} {problem}"


async def test_unreachable_api_server_is_a_problem(
    server: ApiServer, secrets: ClusterPullSecrets
) -> None:
    server.url = "https://127.0.0.1:1"
    found = await secrets.read("default", ("a",), "default")
    assert found == (PullSecret("a", problem="cannot be read: no answer from the API server"),)


async def test_missing_right_to_read_secrets_is_a_problem(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    namespace = cluster.namespace("pull-")
    async with connected_as_an_account_with(cluster, namespace, [], tmp_path) as server:
        found = await ClusterPullSecrets(server).read(namespace, ("a",), "default")
    assert found == (PullSecret("a", problem="may not be read by podsettle"),)
