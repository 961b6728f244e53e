"""Authentication and authorization of routes, with an authorizer that knows three tokens."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import starlette.requests
from fastapi import FastAPI
from starlette.routing import Route

from tests.support.authorizer import Known
from tests.support.reviews import review
from tests.support.server_fixtures import make_components
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.server.app import create_app
from webhook.server.auth import BEARER, guard

OPEN = {"/", "/mutate", "/mutate/", "/readyz", "/version", "/openapi.json"}
POD = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: []}}"


@pytest.fixture
def known() -> Known:
    return Known()


@pytest.fixture
async def app(source: ManifestsSource, known: Known) -> FastAPI:
    components = make_components(source, authorizer=known)
    return create_app(components)


@pytest.fixture
async def closed(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://podsettle") as found:
        yield found


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(text: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


def paths(app: FastAPI) -> list[tuple[str, str]]:
    """All methods and paths of the application."""
    found = [
        (method, route.path)
        for route in app.router.routes
        if isinstance(route, Route)
        for method in route.methods or {"POST"}
    ]
    found += [
        (method.upper(), path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    ]
    return sorted(set(found) | {("GET", "/")})


async def test_all_routes_except_the_open_ones_need_a_token(
    app: FastAPI, closed: httpx.AsyncClient
) -> None:
    found = paths(app)
    assert {path for _, path in found} | {"/mutate/"} == OPEN | {"/preview", "/view", "/metrics"}
    for method, path in found:
        status = (await closed.request(method, path)).status_code
        assert (status == 401) is (path not in OPEN), (method, path, status)


def test_openapi_document_names_the_routes_that_need_a_token(app: FastAPI) -> None:
    document = app.openapi()
    (scheme,) = document["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    guarded = {
        path: operation
        for path, methods in document["paths"].items()
        for operation in methods.values()
        if "security" in operation
    }
    assert set(guarded) == {"/metrics", "/preview", "/view"}
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for operation in guarded.values():
        for status in ("401", "403", "503"):
            assert operation["responses"][status]["content"] == problem
    assert "Problem" in document["components"]["schemas"]


def test_openapi_document_demands_no_token_if_none_is_checked(source: ManifestsSource) -> None:
    document = create_app(make_components(source)).openapi()
    assert "securitySchemes" not in document["components"]


async def test_reviews_probes_and_page_do_not_call_the_authorizer(
    closed: httpx.AsyncClient, known: Known
) -> None:
    assert (await closed.post("/mutate", json=review({}))).status_code == 200
    for path in sorted(OPEN - {"/mutate", "/mutate/"}):
        assert (await closed.get(path)).status_code == 200
    assert known.asked == []


async def test_permitted_token_gets_an_answer(closed: httpx.AsyncClient, known: Known) -> None:
    for headers in (bearer("good"), {"Authorization": "bearer  good "}):
        answer = await closed.post("/preview", content=POD, headers=headers)
        assert answer.status_code == 200, answer.text
        assert (await closed.get("/metrics", headers=headers)).status_code == 200
    assert set(known.asked) == {("good", "post", "/preview"), ("good", "get", "/metrics")}
    assert known.clients == {"127.0.0.1"}


@pytest.mark.parametrize(
    "host",
    ["podsettle/livez?", "podsettle/livez#", "x@podsettle/livez;", "podsettle:443/livez/../"],
)
async def test_host_header_does_not_change_the_authorized_path(
    closed: httpx.AsyncClient, known: Known, host: str
) -> None:
    answer = await closed.get("/metrics", headers={**bearer("good"), "Host": host})
    assert answer.status_code == 200
    assert known.asked == [("good", "get", "/metrics")]


async def test_authorized_path_is_that_of_the_route(known: Known) -> None:
    class Request(starlette.requests.Request):
        @property
        def url(self) -> Any:
            raise AssertionError("older Starlette versions parse it from the Host header")

    headers = [(b"authorization", b"Bearer good"), (b"host", b"x/livez?")]
    scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": headers}
    request = Request(scope)
    await guard(known.authorize)(request, await BEARER(request))
    assert known.asked == [("good", "get", "/metrics")]


GRANT = "kubectl create clusterrolebinding NAME --clusterrole=podsettle-previewer "


@pytest.mark.parametrize(
    ("token", "status", "texts"),
    [
        ("", 401, ["kubectl create token"]),
        ("old", 401, ["does not accept this token: expired"]),
        ("poor", 403, ["'poor' may not post /preview", GRANT]),
        ("lost", 503, ["connection refused"]),
    ],
)
async def test_refusal_says_why_and_what_to_do(
    token: str, status: int, texts: list[str], closed: httpx.AsyncClient
) -> None:
    answer = await closed.post("/preview", content=POD, headers=bearer(token) if token else {})
    assert answer.status_code == status
    assert all(text in answer.json()["detail"] for text in texts)


@pytest.mark.parametrize("headers", [{}, bearer("old"), basic("user:good")])
async def test_no_route_makes_browsers_ask_for_a_password(
    app: FastAPI, closed: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    challenges = {
        (await closed.request(method, path, headers=headers)).headers.get("www-authenticate")
        for method, path in paths(app)
    }
    assert challenges == {None, 'Bearer realm="podsettle"'}


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "good", "Basic good", basic("user:good")["Authorization"]],
)
async def test_header_without_a_token_does_not_call_the_authorizer(
    authorization: str, closed: httpx.AsyncClient, known: Known
) -> None:
    answer = await closed.get("/metrics", headers={"Authorization": authorization})
    assert answer.status_code == 401
    assert known.asked == []


async def test_body_without_a_token_is_not_read(closed: httpx.AsyncClient) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(100):
            read += 1
            yield b"x" * 1024

    answer = await closed.post("/preview", content=body())
    assert answer.status_code == 401
    assert read == 0
