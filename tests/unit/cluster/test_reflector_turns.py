"""Lists and events of thousands of objects, between which the event loop answers reviews."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from webhook.cluster.client import ApiServer
from webhook.cluster.raw_responses import decode_page
from webhook.cluster.reflector import Reflector

OBJECTS = 1000
OBJECT = b'{"metadata":{"name":"%d","resourceVersion":"2"}}'
ITEMS = [OBJECT % number for number in range(OBJECTS)]


class BufferedApiServer:
    """An API server of whose list, and then of whose events, every byte has been received."""

    def __init__(self) -> None:
        self.all_read = asyncio.Event()

    async def pages(self, *_arguments: Any) -> AsyncIterator[Any]:
        yield decode_page(b'{"metadata":{"resourceVersion":"1"},"items":[%b]}' % b",".join(ITEMS))

    @asynccontextmanager
    async def watch(self, *_arguments: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        for item in ITEMS:
            yield b'{"type":"DELETED","object":%b}' % item
        self.all_read.set()
        await asyncio.Event().wait()


async def test_loop_runs_other_tasks_during_a_list_and_between_buffered_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webhook.tasks.SLICE_SECONDS", 0.0)
    monkeypatch.setattr("webhook.cluster.reflector.malloc_trim", lambda: None)
    server = BufferedApiServer()
    listed = Reflector(cast(ApiServer, server), "/things", lambda _: "", lambda: None)
    # What another task sees in each iteration of the loop.
    seen: list[int] = []
    running = asyncio.create_task(listed.run())
    async with asyncio.timeout(60):
        while not server.all_read.is_set():
            await asyncio.sleep(0)
            seen.append(len(listed.objects))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    first_seen = seen.index(OBJECTS)
    assert first_seen >= OBJECTS, "the loop ran in between while the list was decoded"
    assert set(seen[:first_seen]) == {0}, "no part of a list is seen"
    assert set(seen) == set(range(OBJECTS + 1)), "the loop ran after each event"
