"""The log of readiness checks that change."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.cluster.source import Check
from webhook.server.health import log_check_changes
from webhook.tasks import supervise


async def test_each_change_of_a_check_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    ready = [Check("a", True), Check("b", True)]
    gone = [Check("a", True, "gone"), Check("b", True)]
    not_read = [Check("a", True), Check("b", False, "not read yet")]
    await log_of(caplog, not_read, gone, gone, ready, ready)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "not ready: b: not read yet"),
        ("WARNING", "a: gone"),
        ("INFO", "b: ok again"),
        ("INFO", "a: ok again"),
    ]


async def log_of(caplog: pytest.LogCaptureFixture, *polls: list[Check]) -> list[str]:
    """The lines for the checks at each poll."""
    left, done = list(polls), asyncio.Event()

    def checks() -> list[Check]:
        if len(left) == 1:
            done.set()
        return left.pop(0) if len(left) > 1 else left[0]

    with caplog.at_level(logging.INFO):
        async with (
            supervise(lambda: log_check_changes(checks, poll_seconds=0)),
            asyncio.timeout(30),
        ):
            await done.wait()
    return caplog.messages


@pytest.mark.parametrize("ready", [True, False])
async def test_problem_that_its_component_logs_is_not_logged_again(
    ready: bool, caplog: pytest.LogCaptureFixture
) -> None:
    problem = Check("a", ready, "404", logged=True)
    assert await log_of(caplog, [problem], [problem], [Check("a", True)]) == []


async def test_unlogged_problem_after_a_logged_one_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    polls = Check("a", True, "404", logged=True), Check("a", False, "expired"), Check("a", True)
    said = await log_of(caplog, *([each] for each in polls))
    assert said == ["not ready: a: expired", "a: ok again"]


async def test_problem_of_a_manifest_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = ManifestsSource(tmp_path, poll_interval_seconds=0.01)
    file = tmp_path / "policy.yaml"
    with caplog.at_level(logging.INFO):
        async with (
            source.running(),
            supervise(lambda: log_check_changes(source.checks, poll_seconds=0)),
        ):
            file.write_text("kind: SettlePolicyList\n")
            await eventually(lambda: "did you mean" in caplog.text)
            file.unlink()
            await eventually(lambda: "manifests: changed; 0" in caplog.messages[-1])
    assert len([line for line in caplog.messages if "did you mean" in line]) == 1
