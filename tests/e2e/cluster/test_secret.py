"""The store of certificates on a real API server, with the rights that the chart grants."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.service_accounts import connected_as_an_account_with
from webhook.cluster.client import ApiServer
from webhook.cluster.secret import SecretStore
from webhook.tls.dynamic_source import StoreError

RULES = [
    {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": ["podsettle-tls"],
        "verbs": ["get", "update"],
    }
]
CONTENTS = {"tls.crt": b"a certificate", "tls.key": b"\x00\xff"}


class Place:
    """A namespace for a Secret, and two stores that use the rights of podsettle in it."""

    def __init__(self, cluster: KubeCluster, namespace: str, server: ApiServer) -> None:
        self.cluster, self.server = cluster, server
        self.path = f"/api/v1/namespaces/{namespace}/secrets"
        self.store, self.rival = (SecretStore(server, namespace, "podsettle-tls") for _ in range(2))

    def create(self, **fields: Any) -> None:
        metadata = {"name": "podsettle-tls", "labels": {"by": "helm"}}
        self.cluster.create(self.path, {"metadata": metadata, **fields})

    def secret(self) -> dict[str, Any]:
        return self.cluster.request("GET", f"{self.path}/podsettle-tls").body


@pytest.fixture
async def place(cluster: KubeCluster, tmp_path: Path) -> AsyncIterator[Place]:
    namespace = cluster.namespace("secrets-")
    async with connected_as_an_account_with(cluster, namespace, RULES, tmp_path) as server:
        yield Place(cluster, namespace, server)


async def test_write_replaces_its_keys_and_keeps_everything_else(place: Place) -> None:
    place.create(type="Opaque", data={"note": base64.b64encode(b"hello").decode()})
    assert await place.store.read() == {"note": b"hello"}
    await place.store.write(CONTENTS)
    assert await place.rival.read() == {"note": b"hello", **CONTENTS}
    assert place.secret()["metadata"]["labels"] == {"by": "helm"}
    await place.store.write({**CONTENTS, "tls.crt": b"the next"})
    assert (await place.rival.read() or {})["tls.crt"] == b"the next"


async def test_missing_secret_is_not_created(place: Place) -> None:
    assert await place.store.read() is None


async def test_write_after_a_write_of_another_client_fails(place: Place) -> None:
    place.create()
    for store in (place.store, place.rival):
        await store.read()
    await place.rival.write(CONTENTS)
    with pytest.raises(StoreError, match=r"Secret .*/podsettle-tls: 409: "):
        await place.store.write({"tls.crt": b"too late"})
    assert await place.store.read() == CONTENTS


async def test_write_after_a_deletion_does_not_create_the_secret(place: Place) -> None:
    place.create()
    await place.store.read()
    place.cluster.request("DELETE", f"{place.path}/podsettle-tls")
    with pytest.raises(StoreError):
        await place.store.write(CONTENTS)
    assert await place.store.read() is None
    place.create()
    with pytest.raises(StoreError):
        await place.store.write(CONTENTS)
    assert await place.store.read() == {}


async def test_error_response_is_raised_with_its_message(place: Place) -> None:
    place.create(immutable=True)
    await place.store.read()
    with pytest.raises(StoreError, match="immutable"):
        await place.store.write(CONTENTS)
    other = SecretStore(place.server, "default", "podsettle-tls")
    with pytest.raises(StoreError, match=r"Secret default/podsettle-tls: 403: .* cannot get"):
        await other.read()


async def test_unreachable_api_server_is_an_error(place: Place) -> None:
    place.server.url = "https://127.0.0.1:1"
    with pytest.raises(StoreError, match="connection refused"):
        await place.store.read()
    with pytest.raises(StoreError, match="connection refused"):
        await place.store.write(CONTENTS)
