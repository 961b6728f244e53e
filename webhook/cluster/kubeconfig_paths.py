"""The kubeconfig that kubectl would use.

This module is separate from `client`, so that a command can find out whether a cluster is
configured without importing the API client.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class KubeconfigPaths(NamedTuple):
    """The files of a kubeconfig. kubectl merges several files."""

    text: str
    """The paths, separated as in the environment variable KUBECONFIG."""
    origin: str
    """What named them: `--kubeconfig`, `KUBECONFIG`, or empty for the default."""

    @property
    def chosen(self) -> bool:
        """Whether a flag or the environment names them."""
        return bool(self.origin)

    @property
    def exist(self) -> bool:
        """Whether at least one of the files exists."""
        return any(Path(path).expanduser().exists() for path in self.text.split(os.pathsep) if path)

    @property
    def missing_message(self) -> str:
        """The message for files of which none exists."""
        if self.origin == "--kubeconfig":
            return f"{self.text} (--kubeconfig) does not exist"
        origin = f" ({self.origin})" if self.origin else ""
        return (
            f"no cluster found: {self.text}{origin} does not exist; set KUBECONFIG, or run in a pod"
        )


def kubeconfig_paths(kubeconfig: str | None = None) -> KubeconfigPaths:
    """Return the files of the kubeconfig. `kubeconfig` is the value of kubectl's flag.

    podsettle reads KUBECONFIG itself, because `kubernetes.aio` reads it only when it is imported.
    """
    if kubeconfig:
        return KubeconfigPaths(kubeconfig, "--kubeconfig")
    if from_environment := os.environ.get("KUBECONFIG"):
        return KubeconfigPaths(from_environment, "KUBECONFIG")
    return KubeconfigPaths(str(Path("~/.kube/config").expanduser()), "")
