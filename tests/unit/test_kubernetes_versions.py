"""Tests of the tested Kubernetes releases, and of the records of their tests."""

from __future__ import annotations

import json
import re
import sys
from datetime import date
from pathlib import Path

import pytest

from tests.matrix.__main__ import main as matrix
from tests.matrix.results import FILE, Results
from tests.support import junit
from tests.support.junit import Counts
from tests.support.paths import ROOT
from tools.build import CLUSTERS, SETS
from tools.kube_versions import KUBE_VERSION, MODULES, chosen, releases

REPORT = """\
<testsuites><testsuite name="pytest">
<testcase classname="tests.e2e.test_a" name="one" />
<testcase classname="tests.e2e.test_a" name="two"><properties /></testcase>
<testcase classname="tests.e2e.cli.test_b" name="three"><failure>x</failure></testcase>
<testcase classname="tests.e2e.cli.test_b" name="four"><error>x</error></testcase>
<testcase classname="tests.e2e.cli.test_b" name="five"><skipped>x</skipped></testcase>
<testcase classname="tests.e2e.cli.test_b" name="six"><system-out>x</system-out></testcase>
</testsuite></testsuites>
"""
COUNTS = {
    "tests/e2e/test_a.py": {"passed": 2, "failed": 0},
    "tests/e2e/cli/test_b.py": {"passed": 1, "failed": 3},
}


def test_errors_and_skipped_tests_of_a_report_count_as_failed(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert junit.read_report(report) == COUNTS


def test_total_of_several_reports_is_the_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert junit.main(tmp_path) == 1
    for name in ("a", "b"):
        (tmp_path / f"{name}.xml").write_text(REPORT)
    assert junit.main(tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == ["0 passed, 0 failed", "6 passed, 6 failed"]


ADMISSION, CRD = "tests/e2e/test_admission.py", "tests/e2e/test_crd.py"
COMMIT = "0123456789ab"
PASSED, FAILED = {"passed": 2, "failed": 0}, {"passed": 1, "failed": 3}


def counts_of(results: Results, line: str) -> Counts:
    """Return the recorded counts, without the date and the commit of each file's run."""
    files = results.lines[line]["files"]
    assert all(file["commit"] == COMMIT for file in files.values())
    assert all(date.fromisoformat(file["date"]) for file in files.values())
    return {name: {key: file[key] for key in PASSED} for name, file in files.items()}


def test_record_replaces_the_counts_of_the_same_files_only() -> None:
    results = Results({})
    results.record("1.33", {ADMISSION: PASSED, CRD: PASSED}, COMMIT)
    results.lines["1.33"]["files"][CRD]["date"] = "2020-01-01"
    results.record("1.33", {ADMISSION: FAILED}, COMMIT)
    assert counts_of(results, "1.33") == {ADMISSION: FAILED, CRD: PASSED}
    assert results.lines["1.33"]["files"][CRD]["date"] == "2020-01-01"


def test_record_drops_the_counts_of_another_patch_release() -> None:
    results = Results({})
    results.record("1.33", {ADMISSION: PASSED, CRD: PASSED}, COMMIT)
    results.lines["1.33"]["kubernetes"] = "1.33.0"
    results.record("1.33", {CRD: PASSED}, COMMIT)
    assert counts_of(results, "1.33") == {CRD: PASSED}


def test_record_drops_the_counts_of_files_that_do_not_exist() -> None:
    results = Results({})
    results.record("1.33", {CRD: PASSED, "tests/e2e/test_removed.py": PASSED}, COMMIT)
    assert counts_of(results, "1.33") == {CRD: PASSED}


def test_matrix_refuses_single_tests_because_the_table_counts_whole_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["matrix", f"{CRD}::test_one"])
    with pytest.raises(SystemExit, match="2"):
        matrix()
    assert "give whole files" in capsys.readouterr().err


def test_unknown_kubernetes_version_is_an_error_that_names_the_known_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(KUBE_VERSION, "1.29")
    with pytest.raises(SystemExit, match=r"^kube: KUBE_VERSION=1\.29: choose one of 1\.31, 1\.32"):
        chosen()


# The sources of `poster` and `cri` are in their own modules.
PROGRAMS = {
    name: each for name, each in {**SETS, **CLUSTERS}.items() if name not in {"poster", "cri"}
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_is_a_tool_of_its_go_module(name: str) -> None:
    """`go mod tidy` removes what only other programs need, and then the build fails."""
    text = (PROGRAMS[name].module / "go.mod").read_text()
    (tools,) = re.findall(r"^tool (\(.*?\)|.*?$)", text, re.DOTALL | re.MULTILINE)
    wanted = {each.module + each.package for each in PROGRAMS[name].programs.values()}
    assert wanted <= set(tools.strip("()").split())


def test_make_matrix_runs_on_every_release() -> None:
    text = (ROOT / "Makefile").read_text()
    (found,) = re.findall(r"^KUBE_VERSIONS \?= (.+)$", text, re.MULTILINE)
    assert found.split() == list(MODULES)


def test_recorded_results_are_those_of_the_releases_in_the_go_modules() -> None:
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    assert list(recorded) == list(MODULES)
    for line, run in recorded.items():
        assert releases(MODULES[line]).items() <= run.items(), f"{line}: run `make matrix`"


def test_no_recorded_test_has_failed() -> None:
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    failed = [
        f"{line} {name}"
        for line, run in recorded.items()
        for name, counts in run["files"].items()
        if counts["failed"]
    ]
    assert failed == []
