"""What all tests share: one real cluster, and the rule that nothing is skipped in CI."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

_skipped: list[str] = []

# Generated examples are the same in every run: what passes here passes in CI.
settings.register_profile(
    "same",
    derandomize=True,
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")


def pytest_configure() -> None:
    """A shell starts what runs in its background with both ignored; children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that share the cluster on one worker of pytest-xdist, which then has one."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("kube"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A part that did not run is not a part that holds."""
    is_worker = hasattr(session.config, "workerinput")
    if os.environ.get("CI") == "true" and _skipped and not is_worker:
        print(f"\nCI=true and {len(_skipped)} tests were skipped: {', '.join(_skipped)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
