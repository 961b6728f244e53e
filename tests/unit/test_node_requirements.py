"""Tests of what a node says before it starts on a machine that it cannot use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.node.requirements import missing_requirements

pytestmark = pytest.mark.lab


def named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("TMPDIR", str(directory))
    return [line for line in missing_requirements() if line.startswith("node: TMPDIR: ")]


@pytest.mark.parametrize("name", ["a,b", "a:b", "a\\b"])
def test_a_directory_that_no_mount_option_can_hold_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    (line,) = named(tmp_path / name, monkeypatch)
    assert f"a mount option cannot hold {tmp_path / name}" in line


def test_a_missing_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = named(tmp_path / "gone", monkeypatch)
    assert line.startswith(f"node: TMPDIR: {tmp_path / 'gone'} is not a directory")
    assert named(tmp_path, monkeypatch) == []
