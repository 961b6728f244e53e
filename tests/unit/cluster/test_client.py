"""Pages of lists from the API server, and the reflector that reads them."""

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
    """Serve one list; `pages` maps each continue token to its page."""

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


async def test_page_has_its_items_and_the_token_of_the_next_page() -> None:
    async with serving(PAGES) as server:
        page = await server.page("/things", "application/json")

    assert list(page.items) == PAGES[""]["items"]
    assert (page.metadata.resource_version, page.metadata.next) == ("7", "on")


async def test_page_without_items_is_empty() -> None:
    async with serving({"": {"metadata": {"resourceVersion": "7"}, "items": None}}) as server:
        page = await server.page("/things", "application/json")

    assert list(page.items) == []
    assert page.metadata.next == ""


@pytest.mark.parametrize("answer", ["not an object", {"items": []}, {"metadata": {}}])
async def test_response_that_is_not_a_list_is_an_error(answer: object) -> None:
    async with serving({"": answer}) as server:
        with pytest.raises(Unreachable, match="GET /things: the response is not a list"):
            await server.page("/things", "application/json")


async def test_reflector_contains_the_objects_of_all_pages() -> None:
    async with serving(PAGES) as server:
        listed = Reflector(server, "/things", lambda item: item["metadata"]["name"], lambda: None)
        async with supervise(listed.run), asyncio.timeout(30):
            await listed.synced.wait()

    assert listed.objects == {"a": "a", "b": "b", "c": "c"}


async def test_reflector_trims_the_heap_after_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed = asyncio.Event()
    monkeypatch.setattr(reflector, "malloc_trim", trimmed.set)
    async with serving(PAGES) as server:
        listed = Reflector(server, "/things", lambda item: item["metadata"]["name"], lambda: None)
        async with supervise(listed.run), asyncio.timeout(30):
            await trimmed.wait()

    assert listed.synced.is_set()
