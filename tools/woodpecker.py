"""Woodpecker's client, built from a clone: `WOODPECKER_SOURCE=DIR python -m tools.woodpecker`.

Its module is not on the Go module proxy, but its dependencies are. Builds are kept in the cache, so
that tests in a network namespace need no network.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from pathlib import Path

from tools.build import BuildError, announce, find_go, go_release
from tools.cache import cache_directory, exclusive
from tools.source_build import run_step

SOURCE = "WOODPECKER_SOURCE"
BEFORE_LOG_RETRY = "388557d94aa9fe06841a207eba4ffa4ba0ae5a05"
"""The last commit without woodpecker#5550, which opens the stream of a log again."""
BEFORE_STATUS_RETRY = "3ed910ac3b4c7a75e8178adffae40bd7bfc0f6ca"
"""The last commit without woodpecker#6672, which reads the state of a container again."""
_PACKAGE = "./cmd/cli"
_FLAGS = ("-trimpath", "-buildvcs=false", "-ldflags=-s -w")
# The files of Woodpecker's own tests are large, and a partial clone lacks them.
_PATHS = (".", ":(exclude,glob)**/test-files/**")


def find_woodpecker(commit: str) -> Path | None:
    """Return the client of a commit, or None if it is not built yet."""
    program = _program(commit)
    return program if program.is_file() else None


def build_woodpecker(commit: str) -> Path:
    """Return the client of a commit, built where it is not in the cache. Raises BuildError."""
    program = _program(commit)
    with exclusive(program.parent):
        if not program.is_file():
            _build(commit, program)
    return program


def _build(commit: str, program: Path) -> None:
    source = os.environ.get(SOURCE)
    if not source:
        raise BuildError(f"woodpecker {commit}: give a clone of Woodpecker: {SOURCE}=DIR")
    if shutil.which("git") is None:
        raise BuildError(f"woodpecker {commit}: its build needs: apt install git")
    unfinished = program.parent.with_name(f"{program.parent.name}.unfinished")
    # A killed build left it.
    shutil.rmtree(unfinished, ignore_errors=True)
    tree = unfinished / "source"
    tree.mkdir(parents=True)
    archive = unfinished / "source.tar"
    clone = Path(source).resolve()
    run_step(["git", "archive", f"--output={archive}", commit, "--", *_PATHS], clone)
    run_step(["tar", "-xf", str(archive)], tree)
    announce(f"building woodpecker {commit[:9]}: some minutes, once on this machine")
    go = str(find_go(go_release(tree)))
    environment = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    built = unfinished / program.name
    run_step([go, "build", *_FLAGS, "-o", str(built), _PACKAGE], tree, environment)
    shutil.rmtree(tree)
    archive.unlink()
    unfinished.rename(program.parent)
    announce(f"built woodpecker {commit[:9]}")


def _program(commit: str) -> Path:
    target = f"{sys.platform}-{platform.machine().lower()}"
    key = hashlib.sha256(repr((commit, _FLAGS, _PACKAGE)).encode()).hexdigest()[:16]
    return cache_directory() / "woodpecker" / f"{target}-{key}" / "woodpecker-cli"


if __name__ == "__main__":
    try:
        for each in (BEFORE_LOG_RETRY, BEFORE_STATUS_RETRY):
            print(build_woodpecker(each))
    except BuildError as error:
        sys.exit(str(error))
