"""The releases of Kubernetes that the tests run on.

Each has a Go module in `go/kube/v1.NN`. The environment variable `KUBE_VERSION`, such as `1.33`,
chooses one. For a new one, copy the newest module, replace the releases in its go.mod, and run
`go mod tidy`. The staging modules to replace are those of Kubernetes' own go.mod. Not every patch
release has all of them on the Go module proxy: if one is missing, take another.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

GO_MODULES = Path(__file__).resolve().parent / "go"
KUBE_VERSION = "KUBE_VERSION"
NODE_LINES = ("1.36", "1.37")
"""The release lines whose Go modules have a kubelet. The first is that of a real node without
`KUBE_VERSION`. `lab` measures on it: 1.37 locks the feature gate `PLEGOnDemandRelist`."""
MODULES: Mapping[str, Path] = {
    path.name[1:]: path
    for path in sorted((GO_MODULES / "kube").glob("v*"), key=lambda path: int(path.suffix[1:]))
}
"""The directory of each Go module, by the release line that it builds, such as `1.33`."""
DEFAULT = list(MODULES)[-1]
"""The release line without `KUBE_VERSION`, the newest."""


def releases(module: Path) -> dict[str, str]:
    """Return the releases of Kubernetes and etcd in a Go module, such as `1.33.4`."""
    text = (module / "go.mod").read_text(encoding="utf-8")
    paths = {"kubernetes": "k8s.io/kubernetes", "etcd": "go.etcd.io/etcd/server/v3"}
    return {
        name: re.findall(rf"^\t{re.escape(path)} v(\S+)", text, re.MULTILINE)[0]
        for name, path in paths.items()
    }


def server_minor() -> int:
    """Return the 33 of the `1.33` that this process builds and starts."""
    return int(chosen().partition(".")[2])


def node_line() -> str:
    """Return the release line of a real node, for this environment."""
    return line if (line := os.environ.get(KUBE_VERSION)) in NODE_LINES else NODE_LINES[0]


def chosen() -> str:
    """Return the release line that this process builds and starts.

    If the environment names a release without a Go module, this ends the program.
    """
    line = os.environ.get(KUBE_VERSION) or DEFAULT
    if line not in MODULES:
        raise SystemExit(f"kube: {KUBE_VERSION}={line}: choose one of {', '.join(MODULES)}")
    return line
