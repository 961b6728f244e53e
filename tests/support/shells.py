"""The shells of this machine that tests run, each a case of a parametrised test."""

from __future__ import annotations

import pytest

from tests.support.needs import PACKAGES

SHELLS = {
    "sh": ["sh"],
    "dash": ["dash"],
    "bash": ["bash"],
    "bash-as-sh": ["bash", "--posix"],
    "ash": ["busybox", "ash"],
}
"""The command that starts each shell."""


def _marks(name: str) -> list[pytest.MarkDecorator]:
    if SHELLS[name][0] in PACKAGES:
        return [pytest.mark.needs(SHELLS[name][0])]
    return [pytest.mark.slow] if name == "bash-as-sh" else []


SHELL_NAMES = [pytest.param(name, marks=_marks(name)) for name in sorted(SHELLS)]
