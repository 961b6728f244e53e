"""Tests of the results of `make start-gate`, of their tables and of the page that states them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.node.start_gate import main
from bench.node.start_gate_pods import EMPTY, NOTHING, START, Failures, Starts
from bench.node.start_gate_report import (
    PAGE,
    RESULTS,
    Results,
    as_json,
    as_text,
    failure_table,
    from_json,
    price_table,
    rendered,
)

pytestmark = pytest.mark.lab

RESULT = Results(
    {"Kubernetes": "1.36.2"},
    (Failures("DNS", 20, 19, 0),),
    (Starts(NOTHING, (1.0, 1.0)), Starts(EMPTY, (2.0, 2.2)), Starts(START, (2.1, 2.3))),
)


def test_failures_are_counted_without_and_with_a_gate() -> None:
    assert failure_table(RESULT)[1] == ["DNS", "20 and 20", "19", "0"]


def test_price_is_the_mean_difference_of_pairs_with_its_confidence_interval() -> None:
    _, nothing, empty, gate = price_table(RESULT)
    assert nothing[2:] == ["", ""]
    assert empty[2:] == ["+1.10 s ± 0.20", ""]
    assert gate[1:] == ["2.20 s (2.10–2.30)", "+1.20 s ± 0.20", "+0.10 s ± 0.00"]
    assert "2.20 s" in as_text(RESULT)


def test_results_are_read_as_they_were_written() -> None:
    assert from_json(as_json(RESULT)) == RESULT


def test_page_states_the_results_of_the_file() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rendered(page, from_json(RESULTS.read_text(encoding="utf-8"))) == page


def test_figures_of_few_jobs_are_not_written_to_the_page(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--jobs", "19", "--write-docs", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "--jobs 20 or more" in done.output
