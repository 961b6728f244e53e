"""The script that measures SELinux relabelling: its table, and what it says without SELinux."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.node.selinux_relabel import (
    NO_VOLUME,
    RELABELLED,
    SKIPPED,
    Start,
    as_results,
    as_text,
    parse_arguments,
    parse_log,
)
from bench.report_table import ReportTable
from tests.support.paths import ROOT

pytestmark = pytest.mark.lab

CONTAINED = "system_u:system_r:container_t:s0:c123,c456"


def results(context: str, runtime: str = "cri-o://1.33.12") -> dict[str, object]:
    starts = {
        kind: [Start(seconds + change, "node", context) for change in (0.0, 0.5)]
        for kind, seconds in ((NO_VOLUME, 1.0), (RELABELLED, 21.0), (SKIPPED, 1.5))
    }
    return as_results(starts, {"runtime": runtime}, parse_arguments(["--files=5000"]))


def test_table_has_a_row_for_each_kind_of_pod_and_the_difference_to_no_volume() -> None:
    text = as_text(results(CONTAINED))
    cells = [line.split("  ") for line in text.splitlines()]
    rows = {words[0]: words[1:] for line in cells if (words := [w.strip() for w in line if w])}
    assert rows[NO_VOLUME] == ["1.25 s (1.00–1.50)"]
    assert rows[RELABELLED] == ["21.25 s (21.00–21.50)", "20.00 s (20.00–20.00)"]
    assert rows[SKIPPED] == ["1.75 s (1.50–2.00)", "0.50 s (0.50–0.50)"]
    assert "2 pods in each row. The volume has 5,000 files." in text
    assert "SELinux is not enabled" not in text


@pytest.mark.parametrize(
    "context", ["", "unconfined", "cri-containerd.apparmor.d (enforce)", "/:usr:bin"]
)
def test_table_of_a_node_without_selinux_says_that_the_figures_show_nothing(context: str) -> None:
    found = results(context)
    assert found["selinux"] is False
    text = as_text(found)
    assert "SELinux is not enabled on this node" in text
    assert text.index("They show nothing about the remedy") < text.index(RELABELLED)


def test_table_says_that_another_runtime_ignores_the_annotations() -> None:
    text = as_text(results(CONTAINED, "containerd://2.1.9"))
    assert "This runtime is not CRI-O. It ignores the annotations." in text


def test_results_have_the_form_of_the_benchmarks() -> None:
    parts = results(CONTAINED)["parts"]
    assert isinstance(parts, dict)
    table = ReportTable.from_json("relabel", parts["relabel"])
    assert table.figure(RELABELLED, f"more than {NO_VOLUME}").median == 20


def test_times_of_a_log_are_read_from_kubectl_with_nanoseconds() -> None:
    (first, text), (second, _) = parse_log(
        "2026-11-22T19:00:00.100000000Z began\n2026-11-22T20:00:01.350000123+01:00 a b\n"
    )
    assert text == "began"
    assert (second - first).total_seconds() == 1.25


def test_script_runs_alone_without_the_project(tmp_path: Path) -> None:
    copy = tmp_path / "selinux_relabel.py"
    copy.write_bytes((ROOT / "bench" / "node" / "selinux_relabel.py").read_bytes())
    done = subprocess.run(
        [sys.executable, "-I", "-S", copy], cwd=tmp_path, env={"PATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "selinux_relabel: kubectl is not installed\n"


@pytest.mark.parametrize("option", ["--files", "--rounds"])
def test_measurement_without_files_or_pods_is_refused(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_arguments([f"{option}=0"])
    assert "--files and --rounds: the number must be 1 or more" in capsys.readouterr().err
