"""The log of what readiness goes by."""

from __future__ import annotations

import asyncio
import logging

import pytest

from webhook.cluster.source import Check
from webhook.server import health as module
from webhook.server.health import log_check_changes
from webhook.tasks import supervise


async def test_each_change_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LOOKS", 0)
    looks: list[list[Check]] = [
        [Check("a", True), Check("b", False, "not read yet")],
        [Check("a", True, "gone"), Check("b", True)],
        [Check("a", True, "gone"), Check("b", True)],
        [Check("a", True), Check("b", True)],
    ]
    over = asyncio.Event()

    def checks() -> list[Check]:
        if looks:
            return looks.pop(0)
        over.set()
        return [Check("a", True), Check("b", True)]

    with caplog.at_level(logging.INFO):
        async with supervise(lambda: log_check_changes(checks)), asyncio.timeout(10):
            await over.wait()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "not ready: b: not read yet"),
        ("WARNING", "a: gone"),
        ("INFO", "b: ok again"),
        ("INFO", "a: ok again"),
    ]
