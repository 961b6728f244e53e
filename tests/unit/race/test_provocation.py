"""Tests of the provocations' command line."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from race.provocation import main

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("option", ["--runtime", "--conmon"])
def test_missing_program_is_named_with_the_option_that_gives_its_path(option: str) -> None:
    found = {"--runtime": sys.executable, "--conmon": sys.executable}
    paths = [part for pair in {**found, option: "/none/program"}.items() for part in pair]
    result = CliRunner().invoke(main, ["/none/out", *paths])
    assert result.exit_code == 1
    assert result.output == f"Error: /none/program is not found: give its path with {option}\n"
