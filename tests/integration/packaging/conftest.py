"""The distributions of the project, for the tests of their contents."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the source distribution."""
    directory = tmp_path_factory.mktemp("distributions")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return directory


@pytest.fixture(scope="session")
def wheel(distributions: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(next(distributions.glob("*.whl"))) as opened:
        yield opened
