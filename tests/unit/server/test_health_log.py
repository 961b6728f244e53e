"""The log of readiness checks that change."""

from __future__ import annotations

import asyncio
import logging

import pytest

from webhook.cluster.source import Check
from webhook.server.health import log_check_changes
from webhook.tasks import supervise


async def test_each_change_of_a_check_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    polls: list[list[Check]] = [
        [Check("a", True), Check("b", False, "not read yet")],
        [Check("a", True, "gone"), Check("b", True)],
        [Check("a", True, "gone"), Check("b", True)],
        [Check("a", True), Check("b", True)],
    ]
    done = asyncio.Event()

    def checks() -> list[Check]:
        if polls:
            return polls.pop(0)
        done.set()
        return [Check("a", True), Check("b", True)]

    with caplog.at_level(logging.INFO):
        async with (
            supervise(lambda: log_check_changes(checks, poll_seconds=0)),
            asyncio.timeout(10),
        ):
            await done.wait()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "not ready: b: not read yet"),
        ("WARNING", "a: gone"),
        ("INFO", "b: ok again"),
        ("INFO", "a: ok again"),
    ]
