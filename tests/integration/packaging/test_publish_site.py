"""Tests of docs/publish_site.py with a repository on this machine."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from docs.publish_site import BRANCH, main, publish

pytestmark = pytest.mark.lab


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=directory, check=True, capture_output=True, text=True
    )
    return done.stdout


def test_published_versions_stay_beside_one_another_and_the_newest_release_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMAIL", "author@example.com")
    remote, clone, html = (tmp_path / name for name in ("remote", "clone", "html"))
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    git(tmp_path, "clone", "--quiet", str(remote), str(clone))
    html.mkdir()
    (html / "index.html").write_text("first")
    (html / "old.html").touch()
    for version in ("main", "0.9.0", "0.10.0"):
        publish(version, html, clone)
    (html / "index.html").write_text("second")
    (html / "old.html").unlink()
    publish("main", html, clone)

    def read(path: str) -> str:
        return git(remote, "show", f"{BRANCH}:{path}")

    names = ("0.10.0/index.html", "0.10.0/old.html", "0.9.0/index.html", "0.9.0/old.html")
    files = git(remote, "ls-tree", "-r", "--name-only", BRANCH).split()
    assert files == [".nojekyll", *names, "index.html", "main/index.html", "versions.json"]
    assert [read("0.9.0/index.html"), read("main/index.html")] == ["first", "second"]
    versions = [each["version"] for each in json.loads(read("versions.json"))]
    assert versions == ["0.10.0", "0.9.0", "main"]
    assert "url=0.10.0/" in read("index.html")
    assert git(remote, "rev-list", "--count", BRANCH).strip() == "4"
    assert git(clone, "status", "--porcelain") == ""


@pytest.mark.parametrize("version", ["..", ".", ".git", "-x", "a/b", ""])
def test_version_that_is_no_directory_of_the_site_is_refused(version: str) -> None:
    with pytest.raises(SystemExit, match="is no name of a directory"):
        main([f"--version={version}"])
