"""Woodpecker's client, built from its source: `python -m tools.woodpecker`."""

from __future__ import annotations

from pathlib import Path

from tools.source_build import SourceBuild, build_go

SOURCE = "WOODPECKER_SOURCE"
BEFORE_LOG_RETRY = "388557d94aa9fe06841a207eba4ffa4ba0ae5a05"
"""The last commit without woodpecker#5550, which opens the stream of a log again."""
BEFORE_STATUS_RETRY = "3ed910ac3b4c7a75e8178adffae40bd7bfc0f6ca"
"""The last commit without woodpecker#6672, which reads the state of a container again."""
_PROGRAM, _PACKAGE, _FLAGS = "woodpecker-cli", "./cmd/cli", ("-ldflags=-s -w",)


def find_woodpecker(commit: str) -> Path | None:
    """Return the client of a commit, or None if it is not built yet."""
    home = _BUILD.find(commit)
    return home / _PROGRAM if home is not None else None


def _make(tree: Path, output: Path) -> None:
    build_go(tree, _PACKAGE, output / _PROGRAM, *_FLAGS, environment={"CGO_ENABLED": "0"})


_BUILD = SourceBuild(
    name="woodpecker",
    address="https://github.com/woodpecker-ci/woodpecker",
    variable=SOURCE,
    commits={},
    recipe=(_PACKAGE, _FLAGS),
    packages={"git": "git"},
    make=_make,
    left_out=("**/test-files/**",),
)

if __name__ == "__main__":
    _BUILD.main(BEFORE_LOG_RETRY, BEFORE_STATUS_RETRY)
