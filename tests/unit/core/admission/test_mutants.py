"""Tests that decisions on mutants of real pods are equal with the cache and without."""

from __future__ import annotations

from tests.mutants.comparison import Comparison


def test_thousands_of_mutants_get_equal_answers_with_and_without_the_cache() -> None:
    """`make mutants` compares 100,000, of a new seed each time."""
    report = Comparison(seed=1).run(3_000)
    assert report.differences == []
    assert report.shows_something, report
