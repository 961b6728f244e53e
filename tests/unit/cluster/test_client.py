"""What the API server answers, as podsettle takes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from webhook.cluster import reflector
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import Unreachable
from webhook.cluster.reflector import Reflector
from webhook.cluster.rest_client import Configuration
from webhook.tasks import supervise

PAGES: dict[str, dict[str, Any]] = {
    "": {
        "metadata": {"resourceVersion": "7", "continue": "on"},
        "items": [{"metadata": {"name": "a", "labels": {"team": "red"}}}],
    },
    "on": {
        "metadata": {"resourceVersion": "7"},
        "items": [{"metadata": {"name": "b"}}, {"metadata": {"name": "c"}}],
    },
}


@asynccontextmanager
async def serving(pages: Mapping[str, object]) -> AsyncIterator[ApiServer]:
    """A server of one list, each page by the token that it is asked for with."""

    async def answer(request: web.Request) -> web.Response:
        if "watch" in request.query:
            return web.Response()
        return web.json_response(pages[request.query.get("continue", "")])

    app = web.Application()
    app.router.add_get("/things", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        configuration = Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
        configuration.retries = None
        async with ApiServer(configuration) as server:
            yield server
    finally:
        await runner.cleanup()


async def test_a_page_says_what_is_on_it_and_how_to_get_the_next() -> None:
    async with serving(PAGES) as server:
        page = await server.page("/things", "application/json")

    assert list(page.items) == PAGES[""]["items"]
    assert (page.metadata.resource_version, page.metadata.next) == ("7", "on")


async def test_a_page_without_items_is_empty() -> None:
    async with serving({"": {"metadata": {"resourceVersion": "7"}, "items": None}}) as server:
        page = await server.page("/things", "application/json")

    assert list(page.items) == []
    assert page.metadata.next == ""


@pytest.mark.parametrize("answer", ["not an object", {"items": []}, {"metadata": {}}])
async def test_an_answer_that_is_no_list_is_no_answer(answer: object) -> None:
    async with serving({"": answer}) as server:
        with pytest.raises(Unreachable, match="GET /things: the response is not a list"):
            await server.page("/things", "application/json")


async def test_a_mirror_has_what_is_on_every_page() -> None:
    async with serving(PAGES) as server:
        listed = Reflector(server, "/things", lambda item: item["metadata"]["name"], lambda: None)
        await listed._list()

    assert listed.objects == {"a": "a", "b": "b", "c": "c"}


async def test_the_memory_of_a_list_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back = asyncio.Event()
    monkeypatch.setattr(reflector, "malloc_trim", given_back.set)
    async with serving(PAGES) as server:
        listed = Reflector(server, "/things", lambda item: item["metadata"]["name"], lambda: None)
        async with supervise(listed.run), asyncio.timeout(10):
            await given_back.wait()

    assert listed.synced.is_set()
