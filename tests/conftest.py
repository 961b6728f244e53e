"""What all tests share: signals as at the start of a shell, and generated examples."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# An assertion of a fixture or a helper says what it compared, as one of a test.
pytest.register_assert_rewrite("tests.support")

from tests.support.examples import FULL_EXAMPLES, QUICK_EXAMPLES  # noqa: E402

pytest_plugins = ["tests.support.selection"]

# Generated examples are the same in every run.
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
    """A shell ignores INT and QUIT in its background, and nohup HUP; children inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes golden files. Their difference shows what a change prints."""
    parser.addoption(
        "--update-golden", action="store_true", help="write what commands print into tests/golden"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with that of a file, or write it there if the run has --update-golden."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert path.read_text() == text

    return compare
