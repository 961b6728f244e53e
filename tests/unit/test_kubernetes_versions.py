"""Tests of the releases of Kubernetes that are built, and of the counts of their tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import junit
from tools.build import CLUSTERS, SETS
from tools.kube_versions import KUBE_VERSION, chosen

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


def test_every_program_is_a_tool_of_its_go_module() -> None:
    """`go mod tidy` removes what only other programs need, and then the build fails."""
    for name, programs in PROGRAMS.items():
        text = (programs.module / "go.mod").read_text()
        (tools,) = re.findall(r"^tool (\(.*?\)|.*?$)", text, re.DOTALL | re.MULTILINE)
        wanted = set(programs.programs.values())
        assert wanted <= set(tools.strip("()").split()), name
