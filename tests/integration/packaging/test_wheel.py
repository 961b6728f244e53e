"""Tests of the contents of the wheel."""

from __future__ import annotations

import zipfile
from pathlib import PurePosixPath

from tests.support.paths import ROOT


def test_wheel_contains_the_compiled_catalogue_and_no_yaml_file(wheel: zipfile.ZipFile) -> None:
    module = "webhook/core/defects/catalogue.py"
    assert wheel.read(module) == (ROOT / module).read_bytes()
    assert not [name for name in wheel.namelist() if PurePosixPath(name).suffix == ".yaml"]
