"""The figures of the benchmark: intervals, when a commit is worse, and the verdicts on targets."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.intervals import median_interval, percentile
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
    as_json,
    compare,
)
from bench.rows import Effort, Run, in_rounds

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    ("count", "interval"),
    [(5, (-inf, inf)), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (12, (3, 10)), (20, (6, 15))],
)
def test_interval_is_that_of_the_sign_test(count: int, interval: tuple[float, float]) -> None:
    """The ranks stand in tables of the sign test."""
    assert median_interval([*range(count, 0, -1)]) == interval


def test_percentile_of_sorted_and_unsorted_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2
    assert percentile(list(range(300)), 99) == 297
    assert percentile([1.0], 99) == 1


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


def test_ratios_are_calculated_for_each_round() -> None:
    values: Values = {TEMPLATE: {PODSETTLE: [10.0, 5.0], ECHO: [5.0, 1.0], AGNHOST: [1.0, 1.0]}}
    ratios = {each.beside: each.values for each in compare(values) if each.beside}
    assert ratios == {ECHO: (2.0, 5.0), AGNHOST: (10.0, 5.0)}


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


def test_json_has_each_round_and_each_comparison() -> None:
    values: Values = {P99: {PODSETTLE: [3.0], OTHER: [2.0]}}
    data: Any = as_json(values, list(compare(values)), {})
    assert data["figures"] == {P99: {"unit": "ms", "rounds": values[P99]}}
    assert [(each["of"], each["beside"], each["median"]) for each in data["comparisons"]] == [
        (PODSETTLE, "", 3.0),
        (OTHER, "", 2.0),
        (PODSETTLE, OTHER, 1.5),
    ]


def test_rounds_start_new_servers_and_reverse_the_order(tmp_path: Path) -> None:
    order: list[str] = []

    def serve(name: str) -> AbstractContextManager[Any]:
        order.append(name.upper())
        return nullcontext(SimpleNamespace(name=name))

    def measure(_run: Run, server: Any) -> dict[str, float]:
        order.append(server.name)
        return {P99: len(order)}

    run = Run(tmp_path, tmp_path, Effort(rounds=2), {})
    contenders = {name: partial(serve, name) for name in "abc"}
    values = in_rounds(run, "", contenders, [("ab", measure), ("c", measure)])
    assert "".join(order) == "ABCabcCBAbac"
    assert values == {P99: {"a": [4, 11], "b": [5, 10], "c": [6, 12]}}
