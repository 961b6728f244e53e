"""The figures of the benchmark: intervals, when a commit is worse, and the verdicts on targets."""

from __future__ import annotations

from math import inf

import pytest

from bench.intervals import median_interval
from bench.results import (
    AGNHOST,
    DELAY,
    ECHO,
    IDLE,
    LARGE,
    OTHER,
    P99,
    PODSETTLE,
    TEMPLATE,
    Values,
    compare,
)

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    ("count", "interval"),
    [(5, (-inf, inf)), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (12, (3, 10)), (20, (6, 15))],
)
def test_interval_is_that_of_the_sign_test(count: int, interval: tuple[float, float]) -> None:
    """The ranks stand in tables of the sign test."""
    assert median_interval([*range(count, 0, -1)]) == interval


def result(values: Values, of: str, beside: str = "") -> str:
    """Return the result of the one comparison with these contenders."""
    (found,) = [each for each in compare(values) if (each.of, each.beside) == (of, beside)]
    return found.result


@pytest.mark.parametrize(
    ("figure", "factors", "expected"),
    [
        (TEMPLATE, [0.96] * 12, "WORSE"),
        (TEMPLATE, [0.98] * 12, "held"),
        (TEMPLATE, [2.0] * 12, "held"),
        (P99, [1.04] * 12, "WORSE"),
        (P99, [1.02] * 12, "held"),
        (P99, [0.5] * 12, "held"),
        # The ratios of the pairs scatter, so their interval reaches into the bound.
        (P99, [1.02] * 4 + [1.2] * 8, "held"),
        (P99, [2.0] * 5, "held"),
        (IDLE, [1.02] * 12, "WORSE"),
        (IDLE, [1.01] * 12, "held"),
    ],
)
def test_commit_is_worse_if_the_whole_interval_is_beyond_the_bound(
    figure: str, factors: list[float], expected: str
) -> None:
    other = [100.0, 50.0] * 6
    ours = [value * factor for value, factor in zip(other, factors, strict=False)]
    values = {figure: {PODSETTLE: ours, OTHER: other[: len(ours)]}}
    assert result(values, PODSETTLE, OTHER) == expected


@pytest.mark.parametrize(
    ("figure", "beside", "ours", "expected"),
    [
        (TEMPLATE, AGNHOST, 4.0, "met"),
        (TEMPLATE, AGNHOST, 3.9, "MISSED"),
        (LARGE, ECHO, 0.4, "MISSED"),
        (P99, ECHO, 2.0, "met"),
        (P99, ECHO, 2.1, "MISSED"),
        (DELAY, "", 0.5, "met"),
        (DELAY, "", 0.6, "MISSED"),
    ],
)
def test_targets_are_met_or_missed(figure: str, beside: str, ours: float, expected: str) -> None:
    values = {figure: {PODSETTLE: [ours], beside or ECHO: [1.0]}}
    assert result(values, PODSETTLE, beside) == expected
