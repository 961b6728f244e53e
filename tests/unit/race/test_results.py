"""Tests of counts, tables, targets, chart and pages."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner

from race.__main__ import main
from race.calls import HandlerCalls
from race.cells import Condition, Delivery, Kind, Provocation
from race.errors import RaceError
from race.exposure import ExposureSummary
from race.observations import Observations
from race.pages import CATALOGUE
from race.plot import render_chart
from race.pods import Exit
from race.report import (
    as_text,
    full_table,
    lifetime_table,
    percent,
    summary_table,
)
from race.results import Count, Results, RuntimeResult, as_json, counts_of, from_json
from race.targets import Verdict, evaluate_targets, exit_code
from race.texts import fill_catalogue, fill_page, phrases

pytestmark = pytest.mark.lab

LATE = Provocation.LATE_EXIT
CONTROL = Condition(LATE, Delivery.NONE, 0, Kind.INIT)
MAIN = Condition(LATE, Delivery.NONE, 0, Kind.REGULAR)


DELIVERIES = [each for each in Delivery if each is not Delivery.NONE]


def wrapped(delivery: Delivery, lifetime_ms: int = 500, kind: Kind = Kind.INIT) -> Condition:
    return Condition(LATE, delivery, lifetime_ms, kind)


def runtime(name: str, counts: dict[Condition, Count]) -> RuntimeResult:
    exposure = ExposureSummary(900, 700, 20.5, 512, 700, {50: 90, 100: 30, 250: 3, 500: 1})
    handlers = {LATE: HandlerCalls(1_000, 1.5, 1_234)}
    return RuntimeResult(name, "1a2b3c", counts, 600, True, handlers, exposure)


@pytest.fixture
def results() -> Results:
    counts = {
        CONTROL: Count(100, 90, 0),
        wrapped(Delivery.SHELL, 10): Count(100, 60, 0),
        **{wrapped(each): Count(1_000, 0, pods=50) for each in DELIVERIES},
        **{wrapped(each, kind=Kind.REGULAR): Count(150, 0, pods=30) for each in DELIVERIES},
        MAIN: Count(200, 180, 0),
    }
    fixed = {CONTROL: Count(400, 0, 0)}
    return Results(
        {
            "Kubernetes": "1.36.2",
            "processor": "AMD EPYC, 2 cores",
            "date": "2026-11-23",
            "load average before": "0.4",
        },
        (runtime("cri-o://1.33.12", counts), runtime("cri-o://1.33.13", fixed)),
    )


def changed(results: Results, number: int, condition: Condition, count: Count) -> Results:
    """The results with another count on one of the runtimes."""
    found = list(results.runtimes)
    before = found[number]
    found[number] = runtime(before.runtime, {**before.counts, condition: count})
    return Results(results.environment, tuple(found))


def test_exits_are_counted_by_condition_and_code() -> None:
    seen = Observations()
    seen.exits.update({Exit(CONTROL, 0): 5, Exit(CONTROL, 255): 3, Exit(CONTROL, 137): 2})
    seen.pods[CONTROL] = 4
    assert counts_of(seen) == {CONTROL: Count(ended=10, lost=3, other=2, pods=4)}


def test_a_failed_container_of_podsettle_is_a_failure_of_its_delivery() -> None:
    binary = wrapped(Delivery.BINARY)
    seen = Observations()
    seen.exits.update({Exit(binary, 255, is_added=True): 2, Exit(binary, 0, is_added=True): 9})
    (count,) = counts_of(seen).values()
    assert (count.ended, count.added_failed) == (0, 2)
    assert (count.rate, count.high) == (1, 1)


def test_a_condition_with_stuck_pods_only_has_a_row() -> None:
    seen = Observations()
    seen.stuck[CONTROL] += 1
    seen.incomplete[CONTROL] += 2
    (count,) = counts_of(seen).values()
    assert (count.abnormal, count.rate, count.low, count.high) == (3, 0, 0, 1)


def test_results_survive_json(results: Results) -> None:
    assert from_json(as_json(results)) == results


def test_full_table_has_a_row_for_each_condition(results: Results) -> None:
    _, *rows = full_table(results.runtimes[0])
    assert len(rows) == len(results.runtimes[0].counts)
    assert [
        *("S", "init", "none", "-", "not counted", "90 of 100", "0", "90 %; 84 %, 94 %")
    ] in rows
    assert [*("S", "init", "Auto", "500 ms", "50", "0 of 1,000", "0", "0 %; 0 %, 0.30 %")] in rows


def test_full_table_shows_failures_that_are_not_255(results: Results) -> None:
    worse = Count(1_000, 0, other=3, added_failed=2, abnormal=1, pods=50)
    rows = full_table(changed(results, 0, wrapped(Delivery.BINARY), worse).runtimes[0])
    assert any("3, and 2 of podsettle's, and 1 abnormal pods" in row for row in rows)


def test_summary_table_gives_upper_bounds_of_zeros_and_lower_bounds_of_controls(
    results: Results,
) -> None:
    rows = summary_table(results)
    assert [
        *("CRI-O 1.33.12", "not wrapped"),
        *("90 of 100 (at least 84 %)", "180 of 200 (at least 86 %)"),
    ] in rows
    assert [
        *("CRI-O 1.33.12", "`Auto`"),
        *("0 of 1,000 (at most 0.30 %)", "0 of 150 (at most 2.0 %)"),
    ] in rows
    assert ["CRI-O 1.33.13", "not wrapped", "0 of 400 (at most 0.75 %)", ""] in rows


def test_lifetime_table_sets_commands_beside_policies(results: Results) -> None:
    assert lifetime_table(results)[1:] == [
        ["none", "90 of 100 (at least 84 %)", ""],
        ["10 ms", "", "60 of 100 (at least 51 %)"],
        ["500 ms", "", "0 of 1,000 (at most 0.30 %)"],
    ]


def test_targets_are_met_by_zeros_with_high_controls(results: Results) -> None:
    found = {each.target: each.result for each in evaluate_targets(results)}
    assert set(found.values()) == {"met"}
    assert len(found) == 12


OTHER_FAILURES = "all wrapped containers: no exit code but 0 and 255"
BINARY = "Binary (init)"


@pytest.mark.parametrize(
    ("number", "condition", "count", "targets"),
    [
        (0, wrapped(Delivery.BINARY), Count(1_000, 1), [BINARY]),
        (0, wrapped(Delivery.BINARY), Count(999, 0), [BINARY]),
        (0, wrapped(Delivery.BINARY), Count(1_000, 0, other=1_000), [BINARY, OTHER_FAILURES]),
        (0, wrapped(Delivery.BINARY), Count(1_000, 0, added_failed=1), [BINARY, OTHER_FAILURES]),
        (0, wrapped(Delivery.BINARY), Count(1_000, 0, abnormal=1), [BINARY, OTHER_FAILURES]),
        (0, wrapped(Delivery.AUTO, kind=Kind.REGULAR), Count(99, 0), ["Auto (regular)"]),
        (0, wrapped(Delivery.AUTO, kind=Kind.REGULAR), Count(150, 9), ["Auto (regular)"]),
        (0, wrapped(Delivery.SHELL, 10), Count(30, 0, other=1), [OTHER_FAILURES]),
        (0, CONTROL, Count(100, 50), ["controls (init)"]),
        (0, CONTROL, Count(100, 0, other=100), ["controls (init)"]),
        (0, CONTROL, Count(99, 99), ["controls (init)"]),
        (0, MAIN, Count(100, 50), ["controls (regular)"]),
        (1, MAIN, Count(100, 1), ["cri-o://1.33.13, not wrapped: 0"]),
        (1, MAIN, Count(100, 0, other=1), ["cri-o://1.33.13, not wrapped: 0"]),
        (1, MAIN, Count(100, 0, abnormal=1), ["cri-o://1.33.13, not wrapped: 0"]),
        (1, CONTROL, Count(99, 0), ["cri-o://1.33.13, not wrapped: 0"]),
    ],
)
def test_a_target_is_missed(
    results: Results, number: int, condition: Condition, count: Count, targets: list[str]
) -> None:
    worse = changed(results, number, condition, count)
    missed = [each for each in evaluate_targets(worse) if each.result == "missed"]
    assert len(missed) == len(targets)
    for verdict, target in zip(missed, targets, strict=True):
        assert verdict.target.startswith(target)
        assert verdict.fails


def test_a_target_without_a_count_fails_unless_an_option_left_it_out() -> None:
    measured = (runtime("cri-o://1.33.12", {CONTROL: Count(100, 90), MAIN: Count(100, 90)}),)
    found = list(evaluate_targets(Results({}, measured)))
    assert {each.result for each in found} == {"met", "not measured"}
    assert any(each.fails for each in found)
    found = list(evaluate_targets(Results({}, measured, without_podsettle=True)))
    assert {each.result for each in found} == {"met", "left out"}
    assert not any(each.fails for each in found)


def test_text_names_the_natural_rate_and_the_exposure(results: Results) -> None:
    text = as_text(results)
    assert "0 of 3,000 containers lost their exit code" in text
    assert "1 above 500 ms, at most 512 ms (700 ms from the beginning of the start)." in text


def test_text_shows_that_the_provocation_ran(results: Results) -> None:
    assert (
        "Handler of `S`: the runtime called `start` 1,000 times (each took at least 2 ms) and "
        "`state` 1,234 times."
    ) in as_text(results)


def test_text_warns_of_provocations_that_cannot_distinguish(results: Results) -> None:
    assert "say nothing about podsettle" not in as_text(results)
    fails = replace(CONTROL, provocation=Provocation.STATE_FAILS)
    weak = as_text(changed(results, 0, fails, Count(127, 1)))
    assert "init containers failed: `F`: 1 of 127." in weak


def test_text_without_targets_has_all_counts_and_no_verdict(results: Results) -> None:
    text = as_text(results, with_targets=False)
    assert "90 of 100" in text
    assert "rate below" in as_text(results)
    assert "rate below" not in text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0, "0 %"), (0.00299, "0.30 %"), (0.0123, "1.2 %"), (0.5, "50 %"), (1.0, "100 %")],
)
def test_rates_have_two_digits_below_ten_percent(rate: float, text: str) -> None:
    assert percent(rate) == text


def test_chart_has_a_bar_for_each_count_under_the_stronger_provocation(results: Results) -> None:
    chart = ElementTree.fromstring(render_chart(results))
    texts = [each.text for each in chart.iter("{http://www.w3.org/2000/svg}text")]
    assert "CRI-O 1.33.12, not wrapped" in texts
    assert "minLifetime: 10 ms" in texts
    assert "0 of 1,000 (0 %)" in texts


def test_sections_fill_their_markers_and_leave_other_text(results: Results) -> None:
    page = "a\n<!-- race summary: begin -->\nold\n<!-- race summary: end -->\nb\n"
    filled = fill_page(page, results)
    assert filled.startswith("a\n<!-- race summary: begin -->\n| runtime |")
    assert filled.endswith("<!-- race summary: end -->\nb\n")
    assert "old" not in filled
    assert fill_page(filled, results) == filled


def test_phrases_follow_from_the_results(results: Results) -> None:
    page = "<!-- race total -->x<!-- end --> failed, as <!-- race unwrapped --><!-- end --> did"
    assert fill_page(page, results) == (
        "<!-- race total -->none of 4,000<!-- end --> failed, as "
        "<!-- race unwrapped -->71 to 99 %<!-- end --> did"
    )
    worse = changed(results, 0, wrapped(Delivery.AUTO), Count(1_000, 2, 1))
    worse = changed(worse, 0, CONTROL, Count(100, 60))
    assert phrases(worse)["total"] == "3 of 4,000"
    assert phrases(worse)["unwrapped"] == "60 to 99 %"


def test_phrase_of_the_exposure_has_the_longest_of_all_runtimes(results: Results) -> None:
    assert phrases(results)["exposed"] == (
        "2 of 1,800 containers of that run were exposed to the race for more than 500 ms, at most "
        "512 ms"
    )
    short = ExposureSummary(900, 700, 20.5, 118, 200, {50: 90, 100: 30, 250: 0, 500: 0})
    calm = Results({}, tuple(replace(each, exposure=short) for each in results.runtimes))
    assert phrases(calm)["exposed"].startswith("the exposure to the race was at most 118 ms")


def test_catalogue_has_the_figures_of_the_run(results: Results) -> None:
    before = CATALOGUE.read_text(encoding="utf-8")
    after = fill_catalogue(before, results)
    old, new = (yaml.safe_load(text)["evidence"] for text in (before, after))
    assert len(old) == len(new)
    ((figure, how),) = [(b["figure"], b["how"]) for a, b in zip(old, new, strict=True) if a != b]
    assert figure.startswith("0 of 4,000 init containers with postInitSleep (at least 1,000 with")
    assert "90 of 100 without it" in figure
    assert "0 of 400 containers on CRI-O 1.33.13." in figure
    assert how.endswith("2 cores, load average before the run 0.4.")
    assert fill_catalogue(after, results) == after


def test_a_page_without_markers_is_refused(results: Results) -> None:
    with pytest.raises(RaceError, match="no markers"):
        fill_page("text", results)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (["met", "met"], 0),
        (["met", "left out"], 0),
        (["met", "not measured"], 1),
        (["met", "missed"], 1),
        ([], 0),
    ],
)
def test_run_exits_with_1_if_a_target_is_missed_or_not_measured(
    outcomes: list[str], code: int
) -> None:
    assert exit_code(Verdict("a target", "", outcome) for outcome in outcomes) == code


def test_part_of_a_run_cannot_be_written_to_the_pages() -> None:
    done = CliRunner().invoke(main, ["--share", "0.5", "--write-docs"])
    assert done.exit_code == 2
    assert "--write-docs needs a full run: --share is below 1" in done.output
