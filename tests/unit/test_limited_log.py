"""Warnings that clients can cause as often as they like."""

from __future__ import annotations

import logging

import pytest

from webhook.limited_log import LimitedLog


def test_each_line_counts_the_lines_that_were_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = LimitedLog(logging.getLogger("test"), clock=lambda: now)
    for number in range(12):
        log.warning(f"failure {number} 100 %s")
        now += 0.25
    assert [record.getMessage() for record in caplog.records] == [
        "failure 0 100 %s",
        "failure 4 100 %s (3 more of this kind since the last line)",
        "failure 8 100 %s (3 more of this kind since the last line)",
    ]


def test_any_interval_has_at_most_the_maximum_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = LimitedLog(logging.getLogger("test"), max_lines=2, seconds=10, clock=lambda: now)
    for now in (0, 9, 9.5, 10, 18, 19, 20):
        log.warning(f"at {now}")
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "at 0",
        "at 9",
        "at 10",
        "at 19",
        "at 20",
    ]
