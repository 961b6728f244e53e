"""The wheel of the project, for the tests of its contents."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    directory = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", directory, ROOT], check=True)
    with zipfile.ZipFile(next(directory.glob("*.whl"))) as opened:
        yield opened
