"""Reads of objects and lists, from a server that may be no API server or whose lists expire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.reader import ClusterReader, read_metadata
from webhook.cluster.rights import Right
from webhook.cluster.view_reader import read_view
from webhook.inspect.installation import find_installation
from webhook.kubeconfig.access import Access

DEPLOYMENT = Right("get", "apps", "deployments", "ns", "podsettle")
DEPLOYMENTS = Right("list", "apps", "deployments")


class OneAnswer:
    """A server with one answer to each request."""

    url = "https://moved.example"

    def __init__(self, answer: object) -> None:
        self._answer = answer

    async def request(self, *_arguments: Any, **_options: Any) -> object:
        return self._answer


def reader(answer: object) -> ClusterReader:
    return ClusterReader(cast(ApiServer, OneAnswer(answer)))


OTHER_ANSWERS: list[object] = [
    {},
    {"items": []},
    {"message": "moved"},
    {"kind": None},
    {"kind": 7},
]


@pytest.mark.parametrize("right", [DEPLOYMENT, DEPLOYMENTS])
@pytest.mark.parametrize("answer", OTHER_ANSWERS)
async def test_answer_without_a_kind_is_not_that_of_an_api_server(
    answer: object, right: Right
) -> None:
    with pytest.raises(Unreachable, match=r"GET /apis/apps/v1/.*: the response has .*kind.*; is "):
        await reader(answer).get(right)


@pytest.mark.parametrize(
    ("right", "kind"),
    [
        (DEPLOYMENT, "DeploymentList"),
        (DEPLOYMENTS, "Deployment"),
        (DEPLOYMENT, "Status"),
        (DEPLOYMENT, "Secret"),
        (DEPLOYMENTS, "SecretList"),
    ],
)
async def test_answer_of_another_kind_is_not_that_of_an_api_server(right: Right, kind: str) -> None:
    with pytest.raises(Unreachable, match=f"the response has the kind '{kind}'; is https://moved"):
        await reader({"kind": kind}).get(right)


@pytest.mark.parametrize("kind", [None, "Secret", "NamespaceList", "PartialObjectMetadataList"])
async def test_metadata_of_another_kind_is_not_that_of_an_api_server(kind: str | None) -> None:
    answer = {"kind": kind, "metadata": {"name": "ci"}}
    with pytest.raises(Unreachable, match=r"GET /api/v1/namespaces/ci: the response has .*kind"):
        await read_metadata(cast(ApiServer, OneAnswer(answer)), "/api/v1/namespaces/ci", 1)
    for right in ("Namespace", "PartialObjectMetadata"):
        found = answer | {"kind": right}
        server = cast(ApiServer, OneAnswer(found))
        assert await read_metadata(server, "/api/v1/namespaces/ci", 1) == found


async def test_answers_of_an_api_server_are_returned() -> None:
    found = {"kind": "Deployment", "metadata": {"name": "podsettle"}}
    assert await reader(found).get(DEPLOYMENT) == found
    assert await reader({"kind": "DeploymentList", "items": [found]}).list(DEPLOYMENTS) == [found]
    assert await reader({"kind": "DeploymentList"}).list(DEPLOYMENTS) == []


@pytest.mark.parametrize(
    "items", [5, {"a": 1}, [5], [None], [{}], [{"metadata": None}], [{"metadata": {"name": 5}}]]
)
async def test_list_of_other_things_than_objects_is_not_that_of_an_api_server(
    items: object,
) -> None:
    answer = {"kind": "DeploymentList", "items": items}
    with pytest.raises(Unreachable, match="an object in the response has no name"):
        await reader(answer).list(DEPLOYMENTS)


@pytest.mark.parametrize("namespace", [None, "podsettle-system"])
@pytest.mark.parametrize("answer", OTHER_ANSWERS)
async def test_installation_is_not_called_absent_without_the_answer_of_an_api_server(
    answer: object, namespace: str | None
) -> None:
    with pytest.raises(Unreachable, match=r"is https://moved\.example an API server\?"):
        await find_installation(reader(answer), namespace)


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
