"""Supervised background tasks."""

from __future__ import annotations

import asyncio
import logging

import pytest

from webhook.tasks import supervise


async def test_failed_task_is_logged_and_restarted(caplog: pytest.LogCaptureFixture) -> None:
    started = 0
    again, forever = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        nonlocal started
        started += 1
        if started == 1:
            raise KeyError("unexpected")
        again.set()
        await forever.wait()

    with caplog.at_level(logging.ERROR):
        async with supervise(work, restart_seconds=0), asyncio.timeout(30):
            await again.wait()
    assert started == 2
    assert "unexpected" in caplog.text


async def test_tasks_end_with_the_block() -> None:
    before = asyncio.all_tasks()
    async with supervise(asyncio.Event().wait, asyncio.Event().wait):
        assert len(asyncio.all_tasks()) == len(before) + 2
    assert asyncio.all_tasks() == before
