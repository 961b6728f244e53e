"""Builds of CRI-O, Tekton, Woodpecker: which commit they have, and when they need the network."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.process import run
from tools.build import BuildError
from tools.source_build import SourceBuild

pytestmark = pytest.mark.lab

VARIABLE = "PROGRAM_SOURCE"


class Clone:
    """A git repository with one file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self._git("init", "--quiet", "--initial-branch=main")

    @property
    def address(self) -> str:
        return self.directory.as_uri()

    def commit(self, content: str, tag: str | None = None, large: str | None = None) -> str:
        """Commit a content of the file, and perhaps a large file. Return the commit."""
        (self.directory / "program.c").write_text(content)
        if large is not None:
            (self.directory / "large").write_text(large)
        self._git("add", ".")
        author = ("-c", "user.name=test", "-c", "user.email=test@example.com")
        self._git(*author, "commit", "--quiet", "--message", content)
        if tag is not None:
            self._git(*author, "tag", "--annotate", "--message", tag, tag)
        return self._git("rev-parse", "HEAD")

    def forget(self, path: str) -> None:
        """Remove the content of a file from the repository."""
        blob = self._git("rev-parse", f"HEAD:{path}")
        (self.directory / ".git" / "objects" / blob[:2] / blob[2:]).unlink()

    def _git(self, *arguments: str) -> str:
        done = run("git", *arguments, cwd=self.directory, check=True)
        return done.stdout.strip()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no clone in the environment."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "cache" / "podsettle"


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "clone")


def copy(tree: Path, output: Path) -> None:
    shutil.copy2(tree / "program.c", output / "program")


@pytest.fixture
def build(clone: Clone) -> SourceBuild:
    """A build that copies the file of the tree. Its public repository is a `file://` URL."""
    commits = {"v1.0.0": clone.commit("one")}
    clone.commit("two", tag="v1.0.0")
    return SourceBuild("program", clone.address, VARIABLE, commits, 1, {}, make=copy)


def test_released_commit_is_built_even_if_the_tag_is_another_one(build: SourceBuild) -> None:
    assert (build.build("v1.0.0") / "program").read_text() == "one"


def test_clone_that_the_environment_names_takes_precedence_over_the_public_repository(
    clone: Clone, build: SourceBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(clone.directory))
    unreachable = replace(build, address="file:///nowhere")
    assert (unreachable.build("v1.0.0") / "program").read_text() == "one"


def test_clone_may_lack_the_files_that_a_build_leaves_out(
    clone: Clone, build: SourceBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = clone.commit("three", large="large")
    clone.forget("large")
    monkeypatch.setenv(VARIABLE, str(clone.directory))
    with pytest.raises(BuildError, match="git fetch"):
        build.build(commit)
    built = replace(build, left_out=("**/large",)).build(commit)
    assert (built / "program").read_text() == "three"


def test_commit_that_was_built_needs_no_repository(clone: Clone, build: SourceBuild) -> None:
    assert build.find("v1.0.0") is None
    built = build.build("v1.0.0")
    assert [path.name for path in built.iterdir()] == ["program"]
    shutil.rmtree(clone.directory)
    assert build.find("v1.0.0") == build.build("v1.0.0") == built
    assert replace(build, recipe=2).find("v1.0.0") is None


def test_failed_build_is_repeated(build: SourceBuild) -> None:
    def fail(tree: Path, output: Path) -> None:
        shutil.copy2(tree / "program.c", output / "half")
        raise BuildError("no compiler")

    with pytest.raises(BuildError, match="no compiler"):
        replace(build, make=fail).build("v1.0.0")
    assert build.find("v1.0.0") is None
    built = build.build("v1.0.0")
    assert [path.name for path in built.iterdir()] == ["program"]


@pytest.mark.parametrize(("revision", "address"), [("0" * 40, None), ("v1.0.0", "file:///no")])
def test_commit_that_cannot_be_fetched_is_an_error_that_names_the_variable(
    build: SourceBuild, revision: str, address: str | None
) -> None:
    other = replace(build, address=address or build.address)
    with pytest.raises(BuildError, match=rf"(?s)^program {revision}: git fetch .*{VARIABLE}=DIR$"):
        other.build(revision)
