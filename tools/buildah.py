"""Runs of buildah with a storage of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class BuildahError(AssertionError):
    """A command of buildah that failed; the message ends with its output."""


@dataclass(frozen=True)
class Buildah:
    """buildah with its own storage."""

    storage: Path
    environment: Mapping[str, str] | None = None
    """The variables of its process. By default, PATH and HOME."""
    driver: str = "vfs"
    """Of the storage."""

    def __call__(self, command: str, *arguments: str | Path) -> str:
        """Run a command of buildah, and return its output."""
        root = str(self.storage)
        store = ["--storage-driver", self.driver, "--root", root, "--runroot", f"{root}/run"]
        # Without proxies: a build passes them on to its steps.
        minimal = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        done = subprocess.run(
            ["buildah", *store, command, *(str(argument) for argument in arguments)],
            capture_output=True,
            text=True,
            check=False,
            env=minimal if self.environment is None else self.environment,
        )
        if done.returncode != 0:
            output = f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
            raise BuildahError(f"buildah {command}: {output}")
        return str(done.stdout).strip()

    def image_of_files(self, name: str, root: Path, *configuration: str) -> str:
        """Make an image of the files in a directory. Return its name.

        `configuration` are options of `buildah config`.
        """
        container = self("from", "scratch")
        self("copy", container, root, "/")
        if configuration:
            self("config", *configuration, container)
        self("commit", "--rm", container, name)
        return name
