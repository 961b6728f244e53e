"""Tests of the plugin that chooses the tests of a run: `make test` needs no Debian package."""

from __future__ import annotations

import pytest

from tests.support.needs import reasons
from tests.support.paths import ROOT
from tests.support.selection import DEFAULT, LEFT_OUT

pytest_plugins = ["pytester"]

ABSENT = "qemu-s390x-static"
TESTS = f"""
import subprocess
import pytest

def starts(name):
    try:
        subprocess.run([name, "--version"], check=False)
    except FileNotFoundError:
        pass

def test_plain():
    pass

def test_unmarked():
    starts("{ABSENT}")

@pytest.fixture
def program():
    starts("{ABSENT}")

def test_fixture(program):
    pass

@pytest.mark.needs("{ABSENT}")
def test_marked():
    starts("{ABSENT}")

@pytest.mark.slow
def test_slow():
    pass
"""


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(source)
    pytester.makeini("[pytest]\nmarkers =\n  slow\n  lab\n  needs\n")
    plugins = ("-p", "tests.support.selection", "-p", "no:cacheprovider")
    return pytester.runpytest_subprocess(*plugins, *options, f"-opythonpath={ROOT}")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CI", raising=False)


def test_default_run_leaves_marked_tests_out_and_refuses_unmarked_ones(
    pytester: pytest.Pytester,
) -> None:
    result = run(pytester, TESTS, "-m", DEFAULT)
    result.stdout.fnmatch_lines([f'*the test starts {ABSENT}: mark it with needs("{ABSENT}")'])
    result.assert_outcomes(passed=1, failed=1, errors=1, deselected=2)
    assert result.outlines[-1] == (
        "1 passed, 2 failed, 0 skipped. Left out: 2 tests, which make test-all runs."
    )


def test_default_run_fails_if_a_test_is_skipped(pytester: pytest.Pytester) -> None:
    source = "import pytest\n\ndef test_a():\n    pytest.skip('no such thing')\n"
    skipped = run(pytester, source, "-m", DEFAULT)
    assert skipped.ret == pytest.ExitCode.TESTS_FAILED
    skipped.stdout.fnmatch_lines(["make test skips nothing. Mark these tests with *test_a*"])
    assert run(pytester, source).ret == pytest.ExitCode.OK


def test_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert reasons(["chromedriver"]) == ["chromedriver is missing: apt install chromium-driver"]


def test_makefile_leaves_out_the_same_tests() -> None:
    assert f"MARKED := {LEFT_OUT}\n" in (ROOT / "Makefile").read_text()
