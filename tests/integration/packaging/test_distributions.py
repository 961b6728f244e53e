"""Tests of the wheel and the source distribution as package indexes and linters see them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.support.process import run

pytestmark = pytest.mark.lab


def test_index_accepts_the_metadata(distributions: Path) -> None:
    files = sorted(distributions.iterdir())
    assert [path.suffix for path in files] == [".whl", ".gz"]
    done = run(sys.executable, "-m", "twine", "check", "--strict", *files)
    assert done.returncode == 0, done.stdout


def test_linter_of_wheels_finds_nothing(distributions: Path) -> None:
    done = run(sys.executable, "-m", "check_wheel_contents", distributions)
    assert done.returncode == 0, done.stdout


def test_wheel_is_typed_and_contains_no_test(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "webhook/py.typed" in names
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"webhook"}
    assert not [name for name in names if "test" in Path(name).name]
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    assert Parser().parsestr(wheel.read(metadata).decode())["Provides-Extra"] == "server"


def test_source_distribution_builds_the_same_wheel(
    distributions: Path, wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    (archive,) = distributions.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel"],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (rebuilt,) = (source / "dist").glob("*.whl")
    assert rebuilt.read_bytes() == Path(str(wheel.filename)).read_bytes()
