"""The rule of unit tests: they run no program but this Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_running = False


def _refuse_other_programs(event: str, arguments: tuple[object, ...]) -> None:
    if _running and event == "subprocess.Popen":
        program = Path(str(arguments[0]))
        # `podsettle` and its like stand beside the interpreter.
        if program.parent != Path(sys.executable).parent:
            raise AssertionError(
                f"a unit test runs {program}: move the test to tests/integration or tests/e2e"
            )


# An audit hook sees each process, whatever module starts it. It cannot be removed again.
sys.addaudithook(_refuse_other_programs)


@pytest.fixture(autouse=True)
def _only_python() -> Iterator[None]:
    """Fail a test that runs another program, such as a registry, a shell or an API server."""
    global _running
    _running = True
    yield
    _running = False
