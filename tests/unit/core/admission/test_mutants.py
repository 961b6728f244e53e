"""Tests that decisions on mutants of real pods are equal with the cache and without."""

from __future__ import annotations

import pytest

from tests.mutants.comparison import Comparison
from webhook.core.remedies import REMEDIES

pytestmark = pytest.mark.slow


def test_thousands_of_mutants_get_equal_answers_with_and_without_the_cache() -> None:
    """`make mutants` compares 100,000, of a new seed each time."""
    report = Comparison(seed=1).run(3_000)
    assert report.differences == []
    unused = REMEDIES.keys() - report.by_remedy.keys()
    assert not unused, (
        f"{unused} changed no pod: examples/policies.yaml needs a policy that applies them"
    )
    assert report.shows_something, report
