"""Tests of the statistics and tables of the experiments."""

from __future__ import annotations

import json
from collections import defaultdict
from math import comb
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lab.report import LabError, Outcome, Table, added, experiment, rate, upper_bound, values

pytestmark = pytest.mark.lab


def at_most(hits: int, trials: int, rate: float) -> float:
    return sum(comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(hits + 1))


def test_upper_bound_equals_published_limits() -> None:
    for trials in (1, 10, 300, 1_000, 4_000):
        assert upper_bound(0, trials) == pytest.approx(1 - 0.05 ** (1 / trials))
    assert upper_bound(0, 999) > 0.00299
    assert upper_bound(0, 1_000) < 0.003
    # One-sided 95 % limits are the two-sided 90 % limits of published tables.
    for hits, low, high in ((1, 0.0051, 0.3942), (5, 0.2224, 0.7776), (9, 0.6058, 0.9949)):
        assert rate(hits, 10).data["one-sided 95 % bounds"] == pytest.approx([low, high], abs=1e-4)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_bounds_leave_five_percent_outside(drawn: tuple[int, int]) -> None:
    hits, trials = drawn
    low, high = rate(hits, trials).data["one-sided 95 % bounds"]
    assert low <= hits / trials <= high
    if hits < trials:
        assert at_most(hits, trials, high) == pytest.approx(0.05)
    if hits > 0:
        assert 1 - at_most(hits - 1, trials, low) == pytest.approx(0.05)


@pytest.mark.parametrize(("hits", "trials"), [(0, 0), (2, 1), (-1, 5)])
def test_impossible_counts_are_refused(hits: int, trials: int) -> None:
    with pytest.raises(ValueError, match="is no rate"):
        upper_bound(hits, trials)


def test_figures_show_their_range_and_keep_all_values() -> None:
    assert values([2, 1, 9], "s").text == "2.00 s (1.00–9.00)"
    assert values([1234]).text == "1,234"
    assert values([2, 1, 9]).data == {"median": 2, "unit": "", "values": [2, 1, 9]}
    assert rate(0, 1_000).text == "0 of 1,000 (0.00% to 0.30%)"
    assert rate(0, 0).text == "0 of 0"


def test_difference_is_that_of_pairs_with_its_confidence_interval() -> None:
    assert added([2.0, 2.2], [1.0, 1.0]).text == "+1.10 s ± 0.20"
    # The pairs differ by the same time, so that nothing is uncertain.
    assert added([2.1, 2.3], [2.0, 2.2]).text == "+0.10 s ± 0.00"
    assert added([2.0], [1.0]).text == "+1.00 s"


@pytest.fixture(autouse=True)
def _no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit tests start no process, such as git."""
    monkeypatch.setattr("lab.report.describe_environment", lambda _: defaultdict(str))


def run(outcome: Outcome | Exception, *arguments: str) -> tuple[int, str]:
    @click.command()
    @click.option("--pods", type=int, default=3)
    @experiment
    def command(pods: int) -> Outcome:
        assert pods == 3
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    done = CliRunner().invoke(command, arguments)
    return done.exit_code, done.output


TABLE = Table("Starts", [{"pod": "plain"}, {"pod": "settled", "time": values([1, 3], "s")}])


def test_command_prints_tables_for_pages_and_writes_all_figures(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    code, output = run(Outcome([TABLE], {"CRI-O": "1.33.12"}), f"--json={file}")
    assert code == 0, output
    assert "| settled | 2.00 s (1.00–3.00) |" in output
    assert "options pods=3, CRI-O 1.33.12" in output
    written = json.loads(file.read_text())
    assert written["environment"]["options"] == "pods=3"
    (table,) = written["tables"]
    assert table["rows"][1]["time"] == {"median": 2, "unit": "s", "values": [1, 3]}


@pytest.mark.parametrize("outcome", [LabError("no node"), Outcome([TABLE], {}, ["no node"])])
def test_command_fails_if_it_cannot_measure_or_shows_too_little(
    outcome: Outcome | Exception,
) -> None:
    code, output = run(outcome)
    assert code == 1
    assert output.endswith("Error: no node\n")
