"""Tests of the prices of postInitSleep, of their table and of the pages that state them."""

from __future__ import annotations

from math import isnan, sqrt
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.node.price import main
from bench.node.price_pods import NOT_WRAPPED, Starts
from bench.node.price_report import (
    PAGES,
    RESULTS,
    Prices,
    as_json,
    as_markdown,
    as_text,
    from_json,
    rendered,
    table,
)
from race.cells import Condition, Delivery, Kind, Provocation

pytestmark = pytest.mark.lab


def wrapped(delivery: Delivery, lifetime_ms: int = 500) -> Condition:
    return Condition(Provocation.NATURAL, delivery, lifetime_ms, Kind.INIT)


BEFORE = Starts(False, NOT_WRAPPED, {1: (2.0, 2.2), 3: (4.0, 4.2)})
BINARY_BEFORE = Starts(False, wrapped(Delivery.BINARY), {1: (3.4, 3.8), 3: (6.5, 6.7)})
AFTER = Starts(True, NOT_WRAPPED, {1: (1.0, 1.0), 3: (1.2, 1.2)})
SHELL_AFTER = Starts(True, wrapped(Delivery.SHELL), {1: (0.9, 1.1), 3: (1.9, 1.9)})
SHORT_AFTER = Starts(True, wrapped(Delivery.SHELL, 250), {1: (8.0, 8.0), 3: (9.0, 9.0)})
PRICES = Prices({"Kubernetes": "1.36.2"}, (BEFORE, BINARY_BEFORE, AFTER, SHELL_AFTER, SHORT_AFTER))


def test_difference_of_two_means_has_their_common_standard_error() -> None:
    found = BINARY_BEFORE.minus(BEFORE, 1)
    assert found.seconds == pytest.approx(1.5)
    # The squared errors of the means are 0.08 / 2 and 0.02 / 2.
    assert found.standard_error == pytest.approx(sqrt(0.05))


def test_difference_of_single_pods_has_no_standard_error() -> None:
    one, other = (Starts(False, NOT_WRAPPED, {1: (value,)}) for value in (2.0, 1.5))
    found = one.minus(other, 1)
    assert found.seconds == pytest.approx(0.5)
    assert isnan(found.standard_error)


def test_table_compares_wrapped_pods_with_unwrapped_pods_on_the_same_kubelet() -> None:
    _, plain, before, _, after, _ = table(PRICES)
    assert plain == [
        *("before 1.36", "not wrapped", ""),
        *("2.10 s (2.00–2.20)", "", "4.10 s (4.00–4.20)", ""),
    ]
    assert before == [
        *("before 1.36", "`Binary`", "500 ms"),
        *("3.60 s (3.40–3.80)", "+1.50 s ± 0.22", "6.60 s (6.50–6.70)", "+2.50 s ± 0.14"),
    ]
    assert after[4::2] == ["+0.00 s ± 0.10", "+0.70 s ± 0.00"]


def test_range_covers_the_default_lifetime_with_one_and_three_init_containers() -> None:
    assert PRICES.range_of("Binary") == PRICES.range_of("before") == "1.5 to 2.5 s"


def test_range_that_begins_at_no_difference_has_only_an_upper_end() -> None:
    assert PRICES.range_of("Shell") == PRICES.range_of("after") == "up to 0.7 s"


def test_prices_survive_json() -> None:
    assert from_json(as_json(PRICES)) == PRICES


def test_section_names_the_command_the_environment_and_the_number_of_pods() -> None:
    text = as_markdown(PRICES)
    assert "`make price`: Kubernetes 1.36.2." in text
    assert "\n2 pods of each kind" in text
    assert text.count("\n| ") == 1 + len(PRICES.starts)
    assert len(as_text(PRICES).strip().splitlines()) == 1 + len(PRICES.starts)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_page_shows_the_committed_prices(path: Path) -> None:
    prices = from_json(RESULTS.read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    assert "<!-- price " in text
    assert text == rendered(prices)[path]


def test_figures_of_few_pods_are_not_written_to_the_pages() -> None:
    result = CliRunner().invoke(main, ["--pods", "9", "--write-docs"])
    assert result.exit_code == 2
    assert "--write-docs requires --pods 10 or more" in result.output
