"""Tests of the confidence bounds against published values and their definition."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from race.bounds import lower_bound, upper_bound

pytestmark = pytest.mark.lab


def at_most(hits: int, trials: int, rate: float) -> float:
    return sum(comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(hits + 1))


@pytest.mark.parametrize("trials", [1, 10, 300, 1_000, 4_000])
def test_upper_bound_of_zero_hits_has_its_closed_form(trials: int) -> None:
    assert upper_bound(0, trials) == pytest.approx(1 - 0.05 ** (1 / trials))


def test_zero_of_a_thousand_is_below_three_per_mille() -> None:
    assert upper_bound(0, 999) > 0.00299
    assert upper_bound(0, 1_000) < 0.003


# One-sided 95 % limits are the two-sided 90 % limits of published tables.
@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [(1, 10, 0.0051, 0.3942), (5, 10, 0.2224, 0.7776), (9, 10, 0.6058, 0.9949)],
)
def test_bounds_equal_tabulated_limits(hits: int, trials: int, low: float, high: float) -> None:
    assert lower_bound(hits, trials) == pytest.approx(low, abs=1e-4)
    assert upper_bound(hits, trials) == pytest.approx(high, abs=1e-4)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_bounds_leave_five_percent_outside(drawn: tuple[int, int]) -> None:
    hits, trials = drawn
    low, high = lower_bound(hits, trials), upper_bound(hits, trials)
    assert low <= hits / trials <= high
    if hits < trials:
        assert at_most(hits, trials, high) == pytest.approx(0.05)
    if hits > 0:
        assert 1 - at_most(hits - 1, trials, low) == pytest.approx(0.05)


@pytest.mark.parametrize(("hits", "trials"), [(0, 0), (2, 1), (-1, 5)])
def test_impossible_counts_are_refused(hits: int, trials: int) -> None:
    with pytest.raises(ValueError, match="is no rate"):
        upper_bound(hits, trials)
