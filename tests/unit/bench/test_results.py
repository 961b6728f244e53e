"""The calculation of figures from rounds, the verdicts on targets, and the report formats."""

from __future__ import annotations

import pytest

from bench import core, footprint, throughput
from bench.errors import BenchError
from bench.format import COUNT, format_measurement, format_value
from bench.interleave import interleave
from bench.measurement import Measurement, percentile
from bench.profiles import FULL
from bench.report import as_json, as_markdown, fill_page, fill_processor_row, from_json
from bench.report_table import ReportTable
from bench.run import CONNECTIONS
from bench.targets import evaluate_targets
from tests.support.paths import DOCS

pytestmark = pytest.mark.lab

EPYC, XEON = "AMD EPYC 7763, 2 cores", "Intel(R) Xeon(R) Gold 6430, 2 cores"
ENVIRONMENT = {"commit": "c", "processor": EPYC}


def throughput_part(ours: tuple[float, ...]) -> ReportTable:
    part = ReportTable(throughput.NAME, "Throughput")
    figures = {
        "podsettle": ours,
        "echo": (20_000, 10_000),
        "agnhost": (3_000, 1_500),
        throughput.UNLIKE: (6_000, 3_000),
    }
    for name, values in figures.items():
        measure = Measurement(values, "/CPU-s")
        part.rows[throughput.row(name, CONNECTIONS)] = {"reviews per CPU-second": measure}
    return part


def test_interleave_reverses_the_order_after_each_round() -> None:
    order: list[str] = []
    turns = {name: lambda name=name: order.append(name) for name in "abc"}
    interleave(turns, rounds=2, warm_up=lambda name: order.append(name.upper()))
    assert "".join(order) == "ABCabccba"


def test_ratios_and_differences_are_calculated_per_round() -> None:
    ratio = Measurement((10, 5), "/s").ratio_to(Measurement((5, 1), "/s"))
    assert ratio.values == (2, 5)
    assert Measurement((3, 4), "ms").minus(Measurement((1, 1), "ms")) == Measurement((2, 3), "ms")


def test_percentile_of_sorted_and_unsorted_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2
    assert percentile(list(range(300)), 99) == 297
    assert percentile([1.0], 99) == 1


def core_part(miss: float) -> ReportTable:
    part = ReportTable(core.NAME, "Core")
    for name, value in {core.UNCACHED: 100.0, core.MISS: miss}.items():
        part.rows[name] = {"time": Measurement((value,), "µs")}
    return part


def test_targets_are_met_missed_or_not_measured() -> None:
    words = [
        verdict.result
        for verdict in evaluate_targets({throughput.NAME: throughput_part((12_000, 6_000))}, EPYC)
    ]
    assert words[:4] == ["met", "met", "met", "not measured"]
    words = [
        verdict.result
        for verdict in evaluate_targets({throughput.NAME: throughput_part((10_000, 5_000))}, EPYC)
    ]
    assert words[:3] == ["MISSED", "MISSED", "met"]


def test_ratios_to_other_servers_are_compared_only_with_targets_for_the_processor() -> None:
    parts = {throughput.NAME: throughput_part((10_000, 5_000))}
    for processor, words in (
        (EPYC, ["MISSED", "MISSED", "met"]),
        (XEON, ["MISSED", "another processor", "another processor"]),
        ("Neoverse-N1, 2 cores", ["another processor"] * 3),
    ):
        assert [each.result for each in evaluate_targets(parts, processor)][:3] == words


def test_page_has_one_row_for_each_processor() -> None:
    page = "<!-- processors: begin -->\n| A | b | 1 × |\n<!-- processors: end -->\n"
    for ours, ratio in ((9_000, "3.00 ×"), (12_000, "4.00 ×")):
        parts = {throughput.NAME: throughput_part((ours, ours / 2))}
        page = fill_processor_row(page, parts, ENVIRONMENT)
        _, first, second, _ = page.splitlines()
        assert first == "| A | b | 1 × |"
        assert second.startswith(f"| {EPYC} | c | {ratio} |")


def test_a_cache_miss_may_take_15_percent_longer_than_a_decision_without_a_cache() -> None:
    for miss, word in ((115.0, "met"), (116.0, "MISSED")):
        verdicts = evaluate_targets({core.NAME: core_part(miss)}, EPYC)
        assert [v.result for v in verdicts if "cache miss" in v.target.description] == [word]


def footprint_part(seconds: float, seconds_on_api_server: float, mib: float) -> ReportTable:
    part = ReportTable(footprint.NAME, "Footprint")
    part.rows[footprint.READY] = {"time": Measurement((seconds,), "s")}
    part.rows[footprint.READY_ON_API_SERVER] = {"time": Measurement((seconds_on_api_server,), "s")}
    part.rows[footprint.memory_row(FULL.large)] = {footprint.LOADED: Measurement((mib,), "MiB")}
    return part


@pytest.mark.parametrize(
    ("figures", "results"),
    [
        ((0.9, 1.2, 110.0), ["met", "met", "met"]),
        ((0.91, 1.2, 110.0), ["MISSED", "met", "met"]),
        ((0.9, 1.21, 110.0), ["met", "MISSED", "met"]),
        ((0.9, 1.2, 110.1), ["met", "met", "MISSED"]),
    ],
)
def test_start_and_memory_are_compared_with_their_targets(
    figures: tuple[float, float, float], results: list[str]
) -> None:
    verdicts = evaluate_targets({footprint.NAME: footprint_part(*figures)}, EPYC)
    words = {verdict.target.description: verdict.result for verdict in verdicts}
    (memory,) = (name for name in words if name.startswith("memory"))
    assert [words[footprint.READY], words[footprint.READY_ON_API_SERVER], words[memory]] == results


def test_results_survive_a_round_trip_through_json() -> None:
    parts = {throughput.NAME: throughput_part((12_000, 6_000))}
    again, environment = from_json(as_json(parts, ENVIRONMENT))
    assert (again, environment) == (parts, ENVIRONMENT)


def test_figures_are_formatted_with_three_significant_digits() -> None:
    assert format_value(12_345.6, "/s") == "12,346"
    assert format_measurement(Measurement((0.7, 0.712, 0.8), "s")) == "0.71 s (0.70–0.80)"
    assert format_measurement(Measurement((4, 4, 5), COUNT)) == "4 (4–5)"


def test_results_replace_the_marked_section_of_the_page() -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    parts = {throughput.NAME: throughput_part((12_000, 6_000))}
    new = fill_page(page, as_markdown(parts, ENVIRONMENT))
    assert "(AMD EPYC and Intel Xeon) | ≥ 4.00 × | 5.50 × | 4.00 × (4.00–4.00) | met |" in new
    assert fill_page(new, "") == fill_page(page, "")
    with pytest.raises(BenchError):
        fill_page("nothing", "")
