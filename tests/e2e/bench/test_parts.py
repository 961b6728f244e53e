"""A short run of each part: it succeeds, and its results have the expected rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import core
from tests.support.paths import ROOT

pytestmark = pytest.mark.lab


def bench(out: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *map(str, arguments), "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


def short(out: Path, part: str) -> dict[str, Any]:
    """Run a part with --short and return its results."""
    ran = bench(out, part, "--short")
    assert ran.returncode == 0, ran.stderr
    assert "the figures mean nothing" in ran.stdout
    assert "\nTargets\n" not in ran.stdout
    ElementTree.parse(out / "short.svg")
    results: dict[str, Any] = json.loads((out / "short.json").read_text())
    assert list(results["parts"]) == [part]
    assert results["environment"]["commit"]
    for row, figures in results["parts"][part]["rows"].items():
        assert figures, row
        for figure in figures.values():
            assert figure["low"] <= figure["median"] <= figure["high"]
    return results


@pytest.mark.usefixtures("load_tool", "go_webhook")
def test_part_throughput_measures_three_servers_and_its_results_can_be_printed_again(
    tmp_path: Path,
) -> None:
    results = short(tmp_path, "throughput")
    rows = results["parts"]["throughput"]["rows"]
    names = {row.partition(",")[0] for row in rows}
    assert names == {"podsettle", "echo", "agnhost"}
    assert all(figures["reviews/s"]["median"] > 0 for figures in rows.values())
    verdicts = [target["verdict"] for target in results["targets"]]
    assert len(verdicts) - verdicts.count("not measured") == 4
    # --again shows the same results without measuring.
    again = bench(tmp_path / "again", "--again", tmp_path / "short.json")
    assert again.returncode == 0, again.stderr
    assert "\nTargets\n" in again.stdout
    for kind in ("json", "svg"):
        shown = (tmp_path / "again" / f"results.{kind}").read_bytes()
        assert shown == (tmp_path / f"short.{kind}").read_bytes()


@pytest.mark.parametrize("arguments", [("--short",), ("core",)])
def test_write_docs_requires_a_full_run_of_all_parts(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    ran = bench(tmp_path, *arguments, "--write-docs")
    assert ran.returncode == 2
    assert "--write-docs requires a full run of all parts" in ran.stderr


@pytest.mark.usefixtures("load_tool")
def test_part_growth_measures_policies_namespaces_and_pods(tmp_path: Path) -> None:
    rows = short(tmp_path, "growth")["parts"]["growth"]["rows"]
    assert {"1 policy", "100 namespaces", "8 KB pod, echo", "no policy for the pod"} <= set(rows)


def test_part_previews_measures_stalls_and_compares_with_no_previews(tmp_path: Path) -> None:
    rows = short(tmp_path, "previews")["parts"]["previews"]["rows"]
    assert {"no previews", "Tekton pods", "190 nested anchors"} <= set(rows)
    with_previews = [figures for row, figures in rows.items() if row != "no previews"]
    assert all(figures["longest event loop stall"]["low"] > 0 for figures in with_previews)
    assert all("p99, ratio to no previews" in figures for figures in with_previews)


@pytest.mark.usefixtures("address")
def test_part_end_to_end_measures_increments_and_counts_calls(tmp_path: Path) -> None:
    rows = short(tmp_path, "end-to-end")["parts"]["end-to-end"]["rows"]
    assert "increment, p50" not in rows["no webhook"]
    kinds = ("podsettle", "podsettle, cluster-wide policy", "native policy", "exported policy")
    for kind in kinds:
        assert {"increment, p50", "p99"} <= rows[kind].keys()
    called = {
        name: figures["calls per pod"] for name, figures in rows.items() if name != "no webhook"
    }
    assert {name: figure["median"] for name, figure in called.items()} == dict.fromkeys(called, 1)


@pytest.mark.usefixtures("load_tool")
def test_part_footprint_measures_memory_and_sizes(tmp_path: Path) -> None:
    rows = short(tmp_path, "footprint")["parts"]["footprint"]["rows"]
    memory = rows["100 namespaces, 10 policies, API server"]
    assert memory["peak"]["median"] >= memory["idle"]["median"] > 0
    assert rows["helper"]["size"]["median"] > 0


def test_part_core_measures_cpu_time_in_microseconds(tmp_path: Path) -> None:
    rows = short(tmp_path, "core")["parts"]["core"]["rows"]
    assert {"decode", "facts", "cache key", "patch self-check", "encode patch"} <= rows.keys()
    for row in (core.CACHED, core.UNCACHED, core.MISS):
        assert rows[row]["time"]["unit"] == "µs"
