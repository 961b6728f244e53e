"""Work beside the answering of requests."""

from __future__ import annotations

import asyncio
import logging

import pytest

from webhook import tasks as module
from webhook.tasks import supervise


async def test_failed_task_is_logged_and_restarted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0)
    begun = 0
    again, forever = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise KeyError("nobody had thought of it")
        again.set()
        await forever.wait()

    with caplog.at_level(logging.ERROR):
        async with supervise(work), asyncio.timeout(10):
            await again.wait()
    assert begun == 2
    assert "nobody had thought of it" in caplog.text


async def test_tasks_end_with_the_block() -> None:
    before = asyncio.all_tasks()
    async with supervise(asyncio.Event().wait, asyncio.Event().wait):
        assert len(asyncio.all_tasks()) == len(before) + 2
    assert asyncio.all_tasks() == before
