"""The releases of Kubernetes that the tests run on.

Each has a Go module in `go/kube/v1.NN`, which `new_module.py` makes. The environment variable
`KUBE_VERSION`, such as `1.33`, chooses one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

GO_MODULES = Path(__file__).resolve().parent / "go"
KUBE_VERSION = "KUBE_VERSION"
NODE_LINE = "1.36"
"""The release line of a real node and its control plane. Only its Go module has a kubelet.

Not 1.37: its kubelet locks the feature gate `PLEGOnDemandRelist`, which `make price` switches off.
"""
_MODULES = {"kubernetes": "k8s.io/kubernetes", "etcd": "go.etcd.io/etcd/server/v3"}


class UnknownReleaseError(SystemExit):
    """The environment names a release without a Go module. Uncaught, it ends the program."""


def releases(module: Path) -> dict[str, str]:
    """Return the releases of Kubernetes and etcd in a Go module, such as `1.33.4`."""
    text = (module / "go.mod").read_text(encoding="utf-8")
    found = {}
    for name, path in _MODULES.items():
        match = re.search(rf"^\t{re.escape(path)} v(\S+)", text, re.MULTILINE)
        if match is None:
            raise ValueError(f"{module}/go.mod: no requirement of {path}")
        found[name] = match[1]
    return found


def _minor(line: str) -> int:
    return int(line.partition(".")[2])


def _modules() -> dict[str, Path]:
    found = {path.name[1:]: path for path in (GO_MODULES / "kube").glob("v*")}
    return dict(sorted(found.items(), key=lambda item: _minor(item[0])))


MODULES: Mapping[str, Path] = _modules()
"""The directory of each Go module, by the release line that it builds, such as `1.33`."""
DEFAULT = list(MODULES)[-1]
"""The release line without `KUBE_VERSION`, the newest."""


def server_minor() -> int:
    """Return the 33 of the `1.33` that this process builds and starts."""
    return _minor(chosen())


def chosen() -> str:
    """Return the release line that this process builds and starts."""
    line = os.environ.get(KUBE_VERSION) or DEFAULT
    if line not in MODULES:
        raise UnknownReleaseError(
            f"kube: {KUBE_VERSION}={line}: choose one of {', '.join(MODULES)}"
        )
    return line
