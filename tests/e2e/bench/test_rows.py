"""A short run of all rows, beside the same commit: it succeeds, and has the expected figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import results
from tests.support.paths import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.needs("wrk")]


def test_short_run_measures_each_row_of_each_server(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    command = [sys.executable, "-m", "bench", "--short", "--against", "HEAD", "--json", str(file)]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "the figures mean nothing" in ran.stdout
    data = json.loads(file.read_text())
    figures = {name: figure["rounds"] for name, figure in data["figures"].items()}
    both = {results.PODSETTLE, results.OTHER}
    for name, servers in (
        (results.TEMPLATE, {*both, results.ECHO, results.AGNHOST}),
        (results.UNLIKE, {*both, results.ECHO, results.AGNHOST}),
        (results.LARGE, {*both, results.ECHO, results.AGNHOST}),
        (results.INIT_CONTAINERS, {*both, results.AGNHOST}),
        (results.P99, {*both, results.ECHO}),
        (results.READY, both),
        (results.IDLE, both),
        (f"{results.LOADED}{results.IN_LARGE_CLUSTER}", both),
        (f"{results.P99_BESIDE}ordinary pods", both),
        (results.INCREMENT, {*both, results.ECHO, results.NATIVE}),
        (
            results.GROWTH,
            {results.ONE_POLICY, results.MANY_POLICIES, results.MANY_NAMESPACES},
        ),
    ):
        assert figures[name].keys() == servers, name
    # Each target is about a figure that is measured.
    found = {(each["figure"], each["of"], each["beside"]) for each in data["comparisons"]}
    assert found >= {(each.figure, each.of, each.beside) for each in results.TARGETS}
