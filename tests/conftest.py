"""What all tests share: kinds by directory, generated examples, and no skipped test in CI."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import FULL_EXAMPLES, QUICK_EXAMPLES
from tests.support.paths import ROOT

KINDS = ("unit", "integration", "e2e", "node")
# Their fixtures start control planes, releases and browsers.
_LONG_FIRST = ("e2e", "integration")

_skipped: list[str] = []

# Generated examples are the same in every run. `make test` runs all of them, `make unit` some.
for profile, max_examples in (("full", FULL_EXAMPLES), ("quick", QUICK_EXAMPLES)):
    settings.register_profile(
        profile,
        derandomize=True,
        deadline=None,
        max_examples=max_examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("full")


def pytest_configure() -> None:
    """A shell starts what runs in its background with both ignored; children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its kind, and put the kinds whose modules take long first.

    Under pytest-xdist, short tests then fill the end of a run on both workers.
    """
    for item in items:
        if (kind := _kind(item)) in KINDS:
            item.add_marker(kind)
    items.sort(key=lambda item: (*_LONG_FIRST, _kind(item)).index(_kind(item)))


def _kind(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT / "tests").parts[0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A part that did not run is not a part that holds."""
    is_worker = hasattr(session.config, "workerinput")
    if os.environ.get("CI") == "true" and _skipped and not is_worker:
        print(f"\nCI=true and {len(_skipped)} tests were skipped: {', '.join(_skipped)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
