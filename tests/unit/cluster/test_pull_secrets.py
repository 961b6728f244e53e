"""Pull secrets that a tenant has made as large as an object can be."""

from __future__ import annotations

import tracemalloc
from base64 import b64encode
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from webhook.cluster.client import ApiServer
from webhook.cluster.pull_secrets import ClusterPullSecrets
from webhook.core.pull_secrets import DOCKER_CONFIG_JSON, PullSecret
from webhook.kubeconfig.access import Access

AUTHS = b'{"auths":{}}'
KEYS = {f"key-{number}": "" for number in range(300_000)}
SECRET = {
    "metadata": {"managedFields": [{"fieldsV1": {"f:data": {f"f:{key}": {} for key in KEYS}}}]},
    "type": DOCKER_CONFIG_JSON,
    "data": {**KEYS, ".dockerconfigjson": b64encode(AUTHS).decode()},
}


async def read(document: Any, names: tuple[str, ...]) -> tuple[tuple[PullSecret, ...], float]:
    """Read secrets from a server that has one object.

    Return them, and the memory that it took, as a multiple of the object's JSON.
    """
    body = web.json_response(document).body
    assert isinstance(body, bytes)

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server, ApiServer(Access(str(server.make_url("")))) as api:
        tracemalloc.start()
        try:
            found = await ClusterPullSecrets(api).read("ci", names, "default")
            return found, tracemalloc.get_traced_memory()[1] / len(body)
        finally:
            tracemalloc.stop()


async def test_only_the_used_key_of_a_secret_is_decoded() -> None:
    found, memory = await read(SECRET, ("pull",))
    assert found == (PullSecret("pull", DOCKER_CONFIG_JSON, AUTHS),)
    assert memory < 5, "the body is copied as it is received, and no key becomes an object"


@pytest.mark.parametrize("reference", [{}, {"name": "pull"}], ids=["empty", "named"])
async def test_long_list_of_a_service_account_is_not_decoded(reference: Any) -> None:
    (found,), memory = await read({"imagePullSecrets": [reference] * 300_000}, ())
    assert found.problem == ("service account 'default' has more than 64 KiB of imagePullSecrets")
    assert memory < 5, "the body is copied as it is received, and no reference becomes an object"


async def test_secret_with_a_wrong_type_is_malformed() -> None:
    found, _ = await read({"type": DOCKER_CONFIG_JSON, "data": {".dockerconfigjson": 1}}, ("a",))
    assert found == (PullSecret("a", problem="is malformed"),)
    (account,), _ = await read({"imagePullSecrets": 1}, ())
    assert account.problem == "service account 'default' is malformed"
