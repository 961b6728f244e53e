"""The kubeconfig files that kubectl would read. This module imports no API client."""

from __future__ import annotations

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
        return [Path(text) for text in dict.fromkeys(filter(None, texts)) if Path(text).exists()]

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
    """Return the files of the kubeconfig. `kubeconfig` is the value of kubectl's flag."""
    if kubeconfig:
        return KubeconfigPaths(kubeconfig, "--kubeconfig")
    if from_environment := os.environ.get("KUBECONFIG"):
        return KubeconfigPaths(from_environment, "KUBECONFIG")
    return KubeconfigPaths(str(Path("~/.kube/config").expanduser()))
