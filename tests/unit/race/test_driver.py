"""Tests of the choice of the next pod."""

from __future__ import annotations

import pytest

from race.cells import FULL, Cell, Condition, Delivery, Kind, Provocation
from race.driver import Progress
from race.pods import Exit, expected_exits

pytestmark = pytest.mark.lab

WRAPPED = Condition(Provocation.LATE_EXIT, Delivery.SHELL, 500, Kind.INIT)
CONTROL = Condition(Provocation.LATE_EXIT, Delivery.NONE, 0, Kind.INIT)


def test_the_condition_that_lags_behind_most_is_next() -> None:
    progress = Progress([Cell(WRAPPED, 100), Cell(CONTROL, 10)])
    progress.seen.exits[Exit(CONTROL, 255)] = 5
    assert progress.next_condition() == WRAPPED
    progress.seen.exits[Exit(WRAPPED, 0)] = 80
    assert progress.next_condition() == CONTROL


def test_pods_in_flight_count_for_what_they_will_add() -> None:
    progress = Progress([Cell(WRAPPED, 2 * expected_exits(WRAPPED)), Cell(CONTROL, 2)])
    progress.in_flight[WRAPPED] = 2
    progress.in_flight[CONTROL] = 1
    assert progress.next_condition() == CONTROL
    progress.in_flight[CONTROL] = 2
    assert progress.next_condition() is None
    assert not progress.is_complete


def test_a_run_is_complete_with_enough_exits_of_any_code() -> None:
    progress = Progress([Cell(CONTROL, 3)])
    progress.seen.exits.update({Exit(CONTROL, 255): 2, Exit(CONTROL, 0): 1})
    assert progress.is_complete
    assert progress.next_condition() is None


def test_a_plan_without_podsettle_has_no_wrapped_cell_and_keeps_the_controls() -> None:
    plan = FULL.without_podsettle()
    assert not [cell for cell in plan.affected if cell.condition.is_wrapped]
    assert [cell for cell in plan.affected if cell.condition.is_control]
    assert plan.other == FULL.other


def test_a_scaled_plan_keeps_all_cells_with_at_least_ten_containers() -> None:
    plan = FULL.scaled(0.02)
    assert [cell.condition for cell in plan.affected] == [c.condition for c in FULL.affected]
    assert {cell.wanted for cell in plan.affected} == {10, 20}
