"""Tests of the exposure that is read from the provocation's file."""

from __future__ import annotations

import pytest

from race.calls import HandlerCalls, read_calls
from race.exposure import ExposureSummary, read_exposures, summarize

pytestmark = pytest.mark.lab

LINES = """\
start a 1000 21000 0 -
state b 5000 6000 0 running
start b 7000 9000 0 -
state a 30000 61000 1 stopped
state b 300000 609000 0 running
state a 700000 900000 1 stopped
half a li
""".splitlines()


def test_exposure_lasts_from_the_start_until_the_first_answer_after_it() -> None:
    first, second = read_exposures(LINES)
    assert (first.from_begin_ms, first.from_end_ms, first.was_stopped) == (60, 40, True)
    assert (second.from_begin_ms, second.from_end_ms, second.was_stopped) == (602, 600, False)


def test_calls_of_a_handler_have_the_shortest_start() -> None:
    calls = read_calls(LINES)
    assert calls == HandlerCalls(starts=2, shortest_start_ms=2, state_queries=4)
    assert HandlerCalls.from_json(calls.as_json()) == calls


def test_a_handler_that_the_runtime_ignores_has_no_starts() -> None:
    assert read_calls([]) == HandlerCalls(0, 0, 0)


def test_summary_counts_long_exposures_and_survives_json() -> None:
    summary = summarize(read_exposures(LINES))
    assert summary is not None
    assert (summary.containers, summary.stopped) == (2, 1)
    assert (summary.longest_ms, summary.longest_from_begin_ms) == (600, 602)
    assert summary.above == {50: 1, 100: 1, 250: 1, 500: 1}
    assert ExposureSummary.from_json(summary.as_json()) == summary


def test_no_start_gives_no_summary() -> None:
    assert summarize(read_exposures(["state a 1 2 0 running"])) is None
