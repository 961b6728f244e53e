"""Tests of the contents of the wheel."""

from __future__ import annotations

import zipfile
from pathlib import PurePosixPath

from tests.support.paths import ROOT

DEFECTS = "webhook/core/defects"
PAGE = "webhook/server/page"


def test_wheel_contains_the_defects_and_the_examples_as_its_only_yaml_files(
    wheel: zipfile.ZipFile,
) -> None:
    for file in (ROOT / DEFECTS).glob("*.yaml"):
        assert wheel.read(str(file.relative_to(ROOT))) == file.read_bytes()
    yaml_files = {name for name in wheel.namelist() if PurePosixPath(name).suffix == ".yaml"}
    assert {str(PurePosixPath(name).parent) for name in yaml_files} == {DEFECTS, f"{PAGE}/examples"}


def test_wheel_contains_every_part_of_the_page(wheel: zipfile.ZipFile) -> None:
    files = [file for file in (ROOT / PAGE).rglob("*") if file.suffix in {".html", ".css", ".js"}]
    files += (ROOT / PAGE / "examples").iterdir()
    assert len(files) > 20
    for file in files:
        assert wheel.read(str(file.relative_to(ROOT))) == file.read_bytes()
