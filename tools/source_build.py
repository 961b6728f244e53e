"""Builds of programs that no package registry has: CRI-O, Tekton, Woodpecker, Argo, GitLab Runner.

A commit is fetched by `git` from the public repository, or from a clone on this machine. Builds are
kept in the cache, so that a build needs the network once, and tests in a network namespace need
none.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.build import BuildError, announce, find_go, go_release
from tools.cache import cache_directory, exclusive

_TAIL_LINES = 40
# A connection that transfers nothing for so long has failed. Without a terminal, git fails where it
# would ask for a password.
_GIT = {
    "GIT_HTTP_LOW_SPEED_LIMIT": "1",
    "GIT_HTTP_LOW_SPEED_TIME": "60",
    "GIT_TERMINAL_PROMPT": "0",
}


@dataclass(frozen=True)
class SourceBuild:
    """How to build a project from its git repository."""

    name: str
    address: str
    """The public repository."""
    variable: str
    """The environment variable that names a clone on this machine."""
    commits: Mapping[str, str]
    """The commits of released tags, because a tag in a clone can be another one."""
    recipe: object
    """What the result depends on beside the commit. Its `repr` is a part of the key."""
    packages: Mapping[str, str]
    """Programs that the build needs, each with its Debian package."""
    make: Callable[[Path, Path], None]
    """Builds the first directory, a source tree, into the second."""
    left_out: tuple[str, ...] = ()
    """Globs of large files that the build does not need, and that a clone may lack."""

    def find(self, revision: str) -> Path | None:
        """Return the directory of a build, or None if `build` did not build it yet.

        `revision` is a tag of `commits`, or a full hash of a commit.
        """
        home = self._home(revision)
        return home if home.is_dir() else None

    def build(self, revision: str) -> Path:
        """Return the directory of a build, made where it is not in the cache.

        Raises BuildError.
        """
        home = self._home(revision)
        with exclusive(home):
            if not home.is_dir():
                self._build(revision, home)
        return home

    def _build(self, revision: str, home: Path) -> None:
        title = f"{self.name} {revision}"
        missing = {package for name, package in self.packages.items() if shutil.which(name) is None}
        if missing:
            raise BuildError(f"{title}: its build needs: apt install {' '.join(sorted(missing))}")
        unfinished = home.with_name(f"{home.name}.unfinished")
        # A killed build left it.
        shutil.rmtree(unfinished, ignore_errors=True)
        tree = unfinished / "source"
        tree.mkdir(parents=True)
        given = os.environ.get(self.variable) or self.address
        commit = self.commits.get(revision, revision)
        try:
            if self.left_out and "://" not in given:
                self._copy(Path(given).resolve(), commit, tree)
            else:
                # An option that makes the copy shallow has no effect on a path.
                address = given if "://" in given else Path(given).resolve().as_uri()
                run_step(["git", "init", "--quiet"], tree)
                run_step(["git", "fetch", "--quiet", "--depth=1", address, commit], tree, _GIT)
                run_step(["git", "checkout", "--quiet", commit], tree)
        except BuildError as error:
            hint = f"Give a clone of {self.address} that has the commit: {self.variable}=DIR"
            raise BuildError(f"{title}: {error}\n{hint}") from error
        announce(f"building {title}: some minutes, once on this machine")
        self.make(tree, unfinished)
        shutil.rmtree(tree)
        unfinished.rename(home)
        announce(f"built {title}")

    def _copy(self, clone: Path, commit: str, tree: Path) -> None:
        """Copy the files of a commit without `left_out`. `git fetch` would need all of them."""
        archive = tree.with_suffix(".tar")
        excluded = [f":(exclude,glob){each}" for each in self.left_out]
        run_step(["git", "archive", f"--output={archive}", commit, "--", ".", *excluded], clone)
        run_step(["tar", "-xf", str(archive)], tree)
        archive.unlink()

    def _home(self, revision: str) -> Path:
        target = f"{sys.platform}-{platform.machine().lower()}"
        parts = (self.commits.get(revision, revision), self.recipe)
        key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
        return cache_directory() / self.name / f"{target}-{key}"

    def main(self, *revisions: str) -> None:
        """Build the revisions among the program's arguments, else these. Print where they are."""
        try:
            for revision in sys.argv[1:] or revisions:
                print(self.build(revision))
        except BuildError as error:
            sys.exit(str(error))


def build_go(
    tree: Path, package: str, output: Path, *flags: str, environment: Mapping[str, str]
) -> None:
    """Build a Go package of a tree, with the dependencies that it vendors, if it does."""
    vendored = ["-mod=vendor"] if (tree / "vendor").is_dir() else []
    fixed = {"GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
    go = str(find_go(go_release(tree)))
    command = [go, "build", *vendored, "-trimpath", "-buildvcs=false", *flags]
    run_step([*command, "-o", str(output), package], tree, fixed | dict(environment))


def run_step(
    command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Run a command of a build. Raise BuildError with the end of its output if it fails."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-_TAIL_LINES:])
        raise BuildError(f"{' '.join(command)}: failed:\n{tail}")
