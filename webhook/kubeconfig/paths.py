"""The kubeconfig files that kubectl would read. This module imports no API client."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple


class KubeconfigPaths(NamedTuple):
    """The files of a kubeconfig. kubectl merges several files."""

    text: str
    """The paths, separated as in the environment variable KUBECONFIG."""
    origin: str = ""
    """What named them: `--kubeconfig`, `KUBECONFIG`, or empty for the default."""

    @property
    def files(self) -> list[Path]:
        """The files that exist, in the order of their precedence.

        Only KUBECONFIG is a list: `--kubeconfig` takes one file (client-go `loader.go`).
        """
        texts = [self.text] if self.origin == "--kubeconfig" else self.text.split(os.pathsep)
        paths = map(Path, dict.fromkeys(filter(None, texts)))
        return [path for path in paths if not _is_missing(path)]

    @property
    def missing_message(self) -> str:
        """The message for files of which none exists."""
        if self.origin == "--kubeconfig":
            return f"{self.text} (--kubeconfig) does not exist"
        parts = self.text.split(os.pathsep)
        if not self.text.isprintable() or "{" in self.text or len(max(parts, key=len)) > 255:
            content = "the content of a kubeconfig (not shown: it has secrets)"
            return f"no cluster found: {self.origin} has to name files, and seems to be {content}"
        where = f"{self.text} ({self.origin})" if self.origin else self.text
        return f"no cluster found: {where} does not exist; set KUBECONFIG, or run in a pod"


def kubeconfig_paths(kubeconfig: str | None = None) -> KubeconfigPaths:
    """Return the files of the kubeconfig. `kubeconfig` is the value of kubectl's flag."""
    if kubeconfig:
        return KubeconfigPaths(kubeconfig, "--kubeconfig")
    if from_environment := os.environ.get("KUBECONFIG"):
        return KubeconfigPaths(from_environment, "KUBECONFIG")
    # client-go does not look for the home directory where HOME is not set.
    return KubeconfigPaths(str(Path(os.environ.get("HOME", ""), ".kube", "config")))


def _is_missing(path: Path) -> bool:
    """Return whether kubectl would ignore a path. Other faults are those of reading the file."""
    try:
        path.stat()
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENAMETOOLONG)
    return False
