"""Tests of the contents of the wheel, of licence files, and of the bounds of dependencies."""

from __future__ import annotations

import tomllib
import zipfile
from email.parser import Parser
from pathlib import PurePosixPath

import yaml
from packaging.requirements import Requirement

from tests.support.paths import ROOT
from webhook.linger.zig import zig_library

FILES = ("LICENSE", "THIRD_PARTY_NOTICES")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEFECTS = "webhook/core/defects"
PAGE = "webhook/server/page"
DEPENDENCIES = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["server"]]


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


def test_wheel_names_its_licence_and_contains_its_text(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    folder = next(name for name in names if name.endswith(".dist-info/METADATA"))[:-8]
    metadata = Parser().parsestr(wheel.read(f"{folder}METADATA").decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == list(FILES)
    for name in FILES:
        assert wheel.read(f"{folder}licenses/{name}") == (ROOT / name).read_bytes()
    assert not [name for name in names if name.startswith("webhook/linger/bin/")]


def test_chart_names_the_licence() -> None:
    chart = yaml.safe_load((ROOT / "charts/podsettle/Chart.yaml").read_text())
    assert chart["annotations"]["artifacthub.io/license"] == PROJECT["license"] == "Apache-2.0"


def test_licence_file_contains_the_whole_apache_licence() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert "Grant of Patent License" in text


def test_notices_contain_the_licences_of_the_zig_that_links_the_helper() -> None:
    notices = (ROOT / "THIRD_PARTY_NOTICES").read_text()
    library = zig_library()
    for text in (library.parent / "LICENSE", library / "libc/musl/COPYRIGHT"):
        assert text.read_text() in notices, f"copy {text.name} into THIRD_PARTY_NOTICES"


def test_every_dependency_has_a_lower_and_an_upper_bound() -> None:
    for text in DEPENDENCIES:
        operators = {bound.operator for bound in Requirement(text).specifier}
        assert operators == {">=", "<"}, text


def test_lowest_locked_versions_equal_the_lower_bounds() -> None:
    """Otherwise no test would use the lower bound, because another package requires more."""
    locked = dict(
        line.split(" ")[0].split("==")
        for line in (ROOT / "requirements/lowest.txt").read_text().splitlines()
        if "==" in line and not line.startswith(" ")
    )
    for text in DEPENDENCIES:
        wanted = Requirement(text)
        lower = next(bound.version for bound in wanted.specifier if bound.operator == ">=")
        assert f"{locked[wanted.name]}.".startswith(f"{lower}."), text
