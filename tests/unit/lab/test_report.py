"""Tests of the statistics and tables of the experiments."""

from __future__ import annotations

from collections import defaultdict
from math import comb

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lab.report import LabError, Outcome, Table, added, experiment, rate, values

pytestmark = pytest.mark.lab


def at_most(hits: int, trials: int, rate: float) -> float:
    return sum(comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(hits + 1))


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_bounds_leave_five_percent_outside(drawn: tuple[int, int]) -> None:
    hits, trials = drawn
    low, high = rate(hits, trials).data["one-sided 95 % bounds"]
    assert low <= hits / trials <= high
    if hits < trials:
        assert at_most(hits, trials, high) == pytest.approx(0.05)
    if hits > 0:
        assert 1 - at_most(hits - 1, trials, low) == pytest.approx(0.05)


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


@pytest.mark.parametrize("outcome", [LabError("no node"), Outcome([TABLE], {}, ["no node"])])
def test_command_fails_if_it_cannot_measure_or_shows_too_little(
    outcome: Outcome | Exception,
) -> None:
    code, output = run(outcome)
    assert code == 1
    assert output.endswith("Error: no node\n")
