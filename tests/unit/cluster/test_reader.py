"""Reads of objects and lists from a server that may be no API server."""

from __future__ import annotations

from typing import Any, cast

import pytest

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import Unreachable
from webhook.cluster.reader import ClusterReader, read_metadata
from webhook.cluster.rights import Right
from webhook.inspect.installation import find_installation

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
