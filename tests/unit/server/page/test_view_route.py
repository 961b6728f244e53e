"""GET /view: the policies in force and the namespaces that podsettle knows."""

from __future__ import annotations

import asyncio

import httpx
from fastapi import FastAPI
from starlette.types import Message

from tests.support.factories import namespace, policy, view
from tests.support.server_fixtures import make_components
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.policy.model import SettlePolicy, parse_policy
from webhook.core.policy.snapshot import Snapshot
from webhook.server.app import create_app
from webhook.server.limits import ViewLimits
from webhook.server.page.view_route import ViewAnswer, encode_view, view_router

LIMITS = ViewLimits()


def snapshot(*policies: SettlePolicy, **namespaces: dict[str, str]) -> Snapshot:
    return view(*policies, namespaces=[namespace(*each) for each in namespaces.items()])


def answer(found: Snapshot, limits: ViewLimits = LIMITS, docs_url: str | None = None) -> ViewAnswer:
    """The answer, read strictly: with the members of the model and no others."""
    text = encode_view(found, docs_url, limits)
    return ViewAnswer.model_validate_json(text, strict=True, extra="forbid")


async def test_view_route_answers_what_the_manifests_hold(client: httpx.AsyncClient) -> None:
    response = (await client.get("/view")).raise_for_status()
    assert response.headers["Content-Type"] == "application/json"
    found = ViewAnswer.model_validate_json(response.content, strict=True, extra="forbid")
    assert found.policies[0].name == "tekton-on-crio"
    assert "woodpecker" in [namespace.name for namespace in found.namespaces]


def test_policies_come_in_order_of_precedence_and_namespaces_by_name() -> None:
    found = answer(
        snapshot(
            policy("b"),
            policy("c", priority=5, action="Audit"),
            policy("a"),
            web={"team": "a"},
            ci={},
        ),
        docs_url="https://docs.example/why",
    )
    assert [each.name for each in found.policies] == ["c", "a", "b"]
    assert [(each.action, each.priority) for each in found.policies[:2]] == [
        ("Audit", 5),
        ("Mutate", 0),
    ]
    assert [(each.name, each.labels) for each in found.namespaces] == [
        ("ci", {"kubernetes.io/metadata.name": "ci"}),
        ("web", {"team": "a", "kubernetes.io/metadata.name": "web"}),
    ]
    assert found.docs_url == "https://docs.example/why"
    nothing = answer(snapshot())
    assert (nothing.policies, nothing.namespaces, nothing.docs_url) == ([], [], None)


def test_documents_are_policies_that_decide_the_same(source: ManifestsSource) -> None:
    found = answer(source.view)
    documents = {each.metadata.name: each for each in source.view.policies.documents}
    assert len(found.policies) == len(documents)
    for each in found.policies:
        assert parse_policy(each.document) == documents[each.name]


def test_lists_are_cut_by_number_and_by_length_and_counted_whole() -> None:
    policies = [policy(f"p{number}") for number in range(5)]
    namespaces = {f"n{number}": {"key": "v" * 60} for number in range(5)}
    found = answer(snapshot(*policies, **namespaces), ViewLimits(max_policies=2, max_namespaces=3))
    assert [each.name for each in found.policies] == ["p0", "p1"]
    assert [each.name for each in found.namespaces] == ["n0", "n1", "n2"]
    assert (found.policy_count, found.namespace_count) == (5, 5)
    found = answer(snapshot(*policies, **namespaces), ViewLimits(list_bytes=400))
    assert [each.name for each in found.policies] == ["p0"]
    assert [each.name for each in found.namespaces] == ["n0", "n1", "n2"]
    assert (found.policy_count, found.namespace_count) == (5, 5)


async def test_answers_beyond_the_limit_are_refused_until_one_is_sent() -> None:
    app = FastAPI()
    app.include_router(view_router(lambda: b"{}", max_answers=1))
    begun, read = asyncio.Event(), asyncio.Event()

    async def send(_message: Message) -> None:
        begun.set()
        await read.wait()

    scope = {"type": "http", "method": "GET", "path": "/view", "headers": [], "query_string": b""}
    first = asyncio.create_task(app(scope, asyncio.Event().wait, send))  # type: ignore[arg-type]
    await begun.wait()
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://podsettle") as client:
        assert (await client.get("/view")).status_code == 503
        read.set()
        await first
        assert (await client.get("/view")).status_code == 200


async def test_sent_answers_do_not_count_against_the_limit(source: ManifestsSource) -> None:
    transport = httpx.ASGITransport(create_app(make_components(source)))
    async with httpx.AsyncClient(transport=transport, base_url="https://podsettle") as client:
        for _ in range(LIMITS.max_answers + 1):
            assert (await client.get("/view")).status_code == 200
