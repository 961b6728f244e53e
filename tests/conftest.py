"""In CI nothing may be skipped: a part that did not run is not a part that holds."""

from __future__ import annotations

import os

import pytest

_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    is_worker = hasattr(session.config, "workerinput")
    if os.environ.get("CI") == "true" and _skipped and not is_worker:
        print(f"\nCI=true and {len(_skipped)} tests were skipped: {', '.join(_skipped)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
