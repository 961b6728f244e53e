"""The comparison with another commit: its interval, and when a row is worse."""

from __future__ import annotations

from math import inf

import pytest

from bench.against import HERE, THERE, comparison_table, is_worse, median_interval
from bench.measurement import Measurement
from bench.report_table import ReportTable

pytestmark = pytest.mark.lab


def figures(here: list[float], there: list[float], unit: str) -> dict[str, Measurement]:
    return {HERE: Measurement(tuple(here), unit), THERE: Measurement(tuple(there), unit)}


@pytest.mark.parametrize(
    ("count", "interval"),
    [(5, (-inf, inf)), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (12, (3, 10)), (20, (6, 15))],
)
def test_interval_is_that_of_the_sign_test(count: int, interval: tuple[float, float]) -> None:
    """The ranks stand in tables of the sign test."""
    assert median_interval([*range(count, 0, -1)]) == interval


def test_a_row_is_worse_if_the_whole_interval_is_above_three_percent() -> None:
    there = [100.0, 50.0] * 10
    assert is_worse(figures([value * 1.04 for value in there], there, "µs"))
    assert not is_worse(figures([value * 1.02 for value in there], there, "µs"))
    # The ratios of the pairs scatter: 6 of 20 are not above the bound.
    mixed = [value * (1.02 if place < 6 else 1.2) for place, value in enumerate(there)]
    assert not is_worse(figures(mixed, there, "µs"))
    assert not is_worse(figures([200.0], [100.0], "µs"))


def test_memory_is_compared_by_the_difference_in_mebibytes() -> None:
    there = [10.0] * 20
    assert is_worse(figures([11.1] * 20, there, "MiB"))
    assert not is_worse(figures([10.9] * 20, there, "MiB"))


def test_table_has_the_medians_the_comparison_and_the_result() -> None:
    part = ReportTable("against", "")
    part.rows["time"] = figures([3.0, 4.0] * 5, [2.0] * 10, "ms")
    part.rows["memory"] = figures([60.0] * 10, [60.5] * 10, "MiB")
    _, *rows = comparison_table(part)
    assert rows == [
        ["time", "2.00 ms", "3.50 ms", "1.75 ×", "1.50–2.00", "WORSE"],
        ["memory", "60.5 MiB", "60.0 MiB", "-0.50 MiB", "-0.50–-0.50", "held"],
    ]
