"""Tests that the pages show the committed results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from race.cells import Delivery, Kind, Provocation
from race.pages import CHART, PAGES, committed_results, rendered
from race.report import runtime_name, wrapped_init
from race.results import sum_of
from tests.support.paths import DOCS

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("path", [CHART, *PAGES], ids=lambda path: path.name)
def test_chart_and_pages_show_the_committed_results_of_the_race(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == rendered(committed_results())[path]


def test_catalogue_has_the_committed_figures() -> None:
    results = committed_results()
    affected, *others = results.runtimes
    defects = (DOCS / "defects.md").read_text(encoding="utf-8")
    wrapped = wrapped_init(results)
    control = affected.total(Provocation.LATE_EXIT, Delivery.NONE, Kind.INIT)
    assert control
    assert f"{wrapped.failed} of {wrapped.total:,} init containers with postInitSleep" in defects
    assert f"{control.failed} of {control.total:,} without it" in defects
    for other in others:
        count = sum_of(other.counts.values())
        assert count
        of = rf"{count.failed} of {count.total:,}( containers)? on {runtime_name(other)}"
        assert re.search(of, defects)
