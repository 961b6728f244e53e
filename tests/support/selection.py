"""A plugin of pytest: which tests a run has, in which order, and what it says at its end.

The markers `slow`, `lab` and `needs` keep a test out of `make test`. A test that starts a program
of `needs.PACKAGES` without the marker fails, so that `make test` needs none of these programs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.needs import FIXTURES, PACKAGES, reasons
from tests.support.paths import ROOT

KINDS = ("unit", "integration", "e2e", "node")
LEFT_OUT = "slow or lab or needs"
"""The tests that `make test` does not run, as an expression of markers."""
DEFAULT = f"not ({LEFT_OUT})"

_skipped: list[str] = []
_left_out: dict[str, int] = {}
_programs: frozenset[str] | None = None
"""The programs that the running test may not start, or None between tests."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test, and put the kinds that need least first."""
    for item in items:
        if (kind := _kind(item)) in KINDS:
            item.add_marker(kind)
        for fixture in getattr(item, "fixturenames", ()):
            if needed := FIXTURES.get(fixture):
                item.add_marker(pytest.mark.needs(*needed))
    items.sort(key=lambda item: (*KINDS, _kind(item)).index(_kind(item)))
    config.stash[_COLLECTED] = len(items)


_COLLECTED = pytest.StashKey[int]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the process that reports how many tests a worker leaves out."""
    collected = session.config.stash.get(_COLLECTED, 0)
    output = getattr(session.config, "workeroutput", _left_out)
    output["left_out"] = collected - len(session.items)


def _kind(item: pytest.Item) -> str:
    path = item.path
    return path.relative_to(ROOT / "tests").parts[0] if path.is_relative_to(ROOT) else ""


def _needs(item: pytest.Item) -> set[str]:
    return {str(name) for mark in item.iter_markers("needs") for name in mark.args}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Refuse programs that a test does not name, also to its fixtures."""
    global _programs
    # Tests of a real node have many needs, and `make node` checks them.
    _programs = frozenset(PACKAGES) - _needs(item) if _kind(item) != "node" else None
    try:
        return (yield)
    finally:
        _programs = None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test if the machine lacks what it needs."""
    if missing := reasons(sorted(_needs(item))):
        pytest.skip("; ".join(missing))


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen" and _programs is not None:
        name = Path(os.fsdecode(arguments[0])).name  # type: ignore[arg-type]
        if name in _programs:
            raise AssertionError(f'the test starts {name}: mark it with needs("{name}")')


# An audit hook sees each process, whatever module starts it. It cannot be removed again.
sys.addaudithook(_refuse)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember skipped tests."""
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Read how many tests a worker of pytest-xdist left out. All workers say the same."""
    _left_out.update(getattr(node, "workeroutput", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that skipped a test, in CI and in `make test`."""
    if hasattr(session.config, "workerinput") or not _skipped:
        return
    if os.environ.get("CI") == "true":
        print(f"\nCI=true and {len(_skipped)} tests were skipped: {', '.join(_skipped)}")
    elif session.config.option.markexpr == DEFAULT:
        listed = ", ".join(_skipped)
        print(f"\nmake test skips nothing. Mark these tests with needs(…) or slow: {listed}")
    else:
        return
    session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the counts of `make test` as its last line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if (
        config.option.markexpr != DEFAULT
        or config.option.collectonly
        or reporter is None
        or hasattr(config, "workerinput")
    ):
        return
    passed, failed, errors, skipped = (
        len(reporter.stats.get(name, ())) for name in ("passed", "failed", "error", "skipped")
    )
    print(
        f"{passed} passed, {failed + errors} failed, {skipped} skipped. "
        f"Left out: {_left_out.get('left_out', 0)} tests, which make test-all runs."
    )
