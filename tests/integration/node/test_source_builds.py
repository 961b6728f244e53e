"""Builds of CRI-O and Tekton: which commit they have, and when they need the network."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.build import BuildError
from tools.source import Project
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

    def commit(self, content: str, tag: str | None = None) -> str:
        """Commit a content of the file. Return the commit."""
        (self.directory / "program.c").write_text(content)
        self._git("add", "program.c")
        author = ("-c", "user.name=test", "-c", "user.email=test@example.com")
        self._git(*author, "commit", "--quiet", "--message", content)
        if tag is not None:
            self._git(*author, "tag", "--annotate", "--message", tag, tag)
        return self._git("rev-parse", "HEAD")

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.directory, capture_output=True, text=True, check=True
        )
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


@pytest.fixture
def project(clone: Clone) -> Project:
    """A project whose public repository is a `file://` URL."""
    return Project("program", clone.address, VARIABLE)


def build_of(project: Project, make: Callable[[Path, Path], None] | None = None) -> SourceBuild:
    """A build that copies the file of the tree, unless `make` does something else."""

    def copy(tree: Path, output: Path) -> None:
        shutil.copy2(tree / "program.c", output / "program")

    return SourceBuild(project, recipe=1, packages={"tar": "tar"}, make=make or copy)


def test_public_repository_is_cloned_at_the_tag_if_no_clone_is_given(
    clone: Clone, project: Project
) -> None:
    commit = clone.commit("one", tag="v1.0.0")
    clone.commit("two")
    assert project.fetch("v1.0.0") == commit
    assert (build_of(project).build("v1.0.0") / "program").read_text() == "one"


def test_clone_that_the_environment_names_takes_precedence_over_the_public_repository(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone.commit("one", tag="v1.0.0")
    monkeypatch.setenv(VARIABLE, str(clone.directory))
    unreachable = Project("program", "file:///nowhere", VARIABLE)
    assert (build_of(unreachable).build("v1.0.0") / "program").read_text() == "one"


def test_tag_that_was_built_needs_no_repository(clone: Clone, project: Project) -> None:
    clone.commit("one", tag="v1.0.0")
    build = build_of(project)
    assert build.find("v1.0.0") is None
    built = build.build("v1.0.0")
    shutil.rmtree(clone.directory)
    assert build.find("v1.0.0") == build.build("v1.0.0") == built


def test_branch_of_a_clone_is_built_again_after_a_commit(
    clone: Clone, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(clone.directory))
    build = build_of(project)
    for content in ("one", "two"):
        clone.commit(content)
        assert (build.build("main") / "program").read_text() == content


def test_builds_of_one_commit_with_different_recipes_are_kept_apart(
    clone: Clone, project: Project
) -> None:
    clone.commit("one", tag="v1.0.0")
    first, second = (
        SourceBuild(project, recipe, {}, lambda _tree, output: (output / "program").touch())
        for recipe in (1, 2)
    )
    assert first.build("v1.0.0") != second.build("v1.0.0")


def test_failed_build_is_repeated(clone: Clone, project: Project) -> None:
    def fail(tree: Path, output: Path) -> None:
        shutil.copy2(tree / "program.c", output / "half")
        raise BuildError("no compiler")

    clone.commit("one", tag="v1.0.0")
    with pytest.raises(BuildError, match="no compiler"):
        build_of(project, fail).build("v1.0.0")
    assert build_of(project).find("v1.0.0") is None
    built = build_of(project).build("v1.0.0")
    assert [path.name for path in built.iterdir()] == ["program"]


def test_missing_tag_is_an_error_that_names_the_variable(clone: Clone, project: Project) -> None:
    clone.commit("one", tag="v1.0.0")
    with pytest.raises(BuildError, match=rf"program: v1\.0\.1 of file://\S+: .*{VARIABLE}=DIR"):
        project.fetch("v1.0.1")


def test_wrong_directory_is_an_error_that_names_the_variable_even_if_the_tag_was_built(
    clone: Clone, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone.commit("one", tag="v1.0.0")
    build_of(project).build("v1.0.0")
    for wrong in (tmp_path, tmp_path / "missing"):
        monkeypatch.setenv(VARIABLE, str(wrong))
        with pytest.raises(BuildError, match=rf"^program: {wrong} is no git repo.*{VARIABLE}=DIR"):
            build_of(project).build("v1.0.0")


def test_pinned_tag_of_another_commit_is_refused(clone: Clone, project: Project) -> None:
    released = clone.commit("one", tag="v1.0.0")
    moved = clone.commit("two", tag="v1.0.1")
    pins = {"v1.0.0": released, "v1.0.1": released}
    pinned = Project(project.name, project.address, VARIABLE, pins)
    assert pinned.fetch("v1.0.0") == released
    with pytest.raises(BuildError, match=rf"program: v1\.0\.1 of .*{moved}.*{released}"):
        pinned.fetch("v1.0.1")
    assert pinned.commit("v1.0.1") is None


def test_build_of_a_tag_that_was_at_another_commit_is_not_used(
    clone: Clone, project: Project
) -> None:
    clone.commit("one", tag="v1.0.0")
    build_of(project).build("v1.0.0")
    pinned = Project(project.name, project.address, VARIABLE, {"v1.0.0": "0" * 40})
    assert build_of(pinned).find("v1.0.0") is None
    with pytest.raises(BuildError, match=rf"program: v1\.0\.0 of .* is {'0' * 40}"):
        build_of(pinned).build("v1.0.0")


def test_missing_program_is_an_error_that_names_its_debian_package(
    clone: Clone, project: Project
) -> None:
    clone.commit("one", tag="v1.0.0")
    packages = {"no-such-compiler": "gcc-99", "tar": "tar"}
    build = SourceBuild(project, 1, packages, lambda _tree, _output: None)
    with pytest.raises(BuildError, match=r"program v1\.0\.0: .*: apt install gcc-99$"):
        build.build("v1.0.0")
