"""Lists of several pages whose resource version expires. A real API server needs minutes for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError
from webhook.cluster.view_reader import read_view
from webhook.kubeconfig.access import Access


@asynccontextmanager
async def cluster_whose_pages_expire(times: int) -> AsyncIterator[tuple[ApiServer, list[str]]]:
    """Serve nodes in two pages. The requests after the first page fail this number of times."""
    requested: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.36.2"})
        if request.path.endswith("/settlepolicies"):
            item = {"kind": "SettlePolicy", "metadata": {"name": "a"}, "spec": {"remedies": {}}}
            document = {"kind": "SettlePolicyList", "metadata": {"resourceVersion": "7"}}
            return web.json_response({**document, "items": [item]})
        if not request.path.endswith("/nodes"):
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": []})
        token = request.query.get("continue", "")
        requested.append(token)
        if token and len(requested) <= times + 1:
            new = "" if token == "now" else "now"  # Only the first answer has a token.
            gone = {"message": "the version is too old", "metadata": {"continue": new}}
            return web.json_response(gone, status=410)
        node = {"metadata": {"name": "b" if token else "a"}, "status": {}}
        metadata = {"resourceVersion": "7", "continue": "" if token else "a/b&c"}
        return web.json_response({"metadata": metadata, "items": [node]})

    async with (
        RawTestServer(answer) as served,
        ApiServer(Access(f"http://127.0.0.1:{served.port}")) as server,
    ):
        yield server, requested


async def test_list_whose_resource_version_expires_continues() -> None:
    async with cluster_whose_pages_expire(1) as (server, requested):
        live = await read_view(server)
    assert {node.name for node in live.view.nodes.all} == {"a", "b"}
    assert requested == ["", "a/b&c", "now"]
    assert live.unread == ()


async def test_list_that_expires_again_is_an_error() -> None:
    async with cluster_whose_pages_expire(2) as (server, _):
        with pytest.raises(ApiError, match="410: the version is too old"):
            await read_view(server)


async def test_list_for_a_watch_does_not_continue_with_a_later_version() -> None:
    async with cluster_whose_pages_expire(1) as (server, _):
        with pytest.raises(ApiError, match="410: the version is too old"):
            _ = [page async for page in server.pages("/nodes", "application/json")]


async def test_policy_without_the_time_of_its_creation_is_read() -> None:
    async with cluster_whose_pages_expire(0) as (server, _):
        live = await read_view(server)
    assert dict(live.created) == {}
    assert live.unread == ()
