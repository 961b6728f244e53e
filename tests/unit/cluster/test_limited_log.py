"""Warnings that clients can cause as often as they like."""

from __future__ import annotations

import logging

import pytest

from webhook.cluster.limited_log import LimitedLog


def test_one_line_a_second_counts_the_lines_that_were_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    log = LimitedLog(logging.getLogger("test"), lambda: now)
    for number in range(12):
        log.warning(f"failure {number} 100 %s")
        now += 0.25
    assert [record.getMessage() for record in caplog.records] == [
        "failure 0 100 %s",
        "failure 4 100 %s (3 more of this kind since the last line)",
        "failure 8 100 %s (3 more of this kind since the last line)",
    ]
