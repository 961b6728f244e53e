"""Argo Workflows, built from its source: `python -m tests.support.node.argo_build`."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.node.image_files import IMAGES
from tests.support.node.registry_server import serve
from tests.support.process import free_port
from tools.buildah import Buildah
from tools.source_build import SourceBuild, build_go

RELEASE, SOURCE = "v4.1.2", "ARGO_SOURCE"
CRDS = "manifests/base/crds/minimal"
_STRIPPED = "-ldflags=-s -w"
_ARGOSAY = "test/e2e/images/argosay/v2/argosay"  # the image of many examples


def find_argo() -> Path | None:
    """Return the controller's directory, or None if Argo is not built yet.

    It also has Argo's `examples`, CRDS, and the data of a `registry` with argoexec and argosay.
    """
    return _BUILD.find(RELEASE)


def _make(tree: Path, output: Path) -> None:
    images, registry = output / "images", output / "registry"
    for name, program in (("workflow-controller", output), ("argoexec", images / "argoexec/bin")):
        build_go(tree, f"./cmd/{name}", program / name, _STRIPPED, environment={"CGO_ENABLED": "0"})
    (images / "argosay").mkdir()
    IMAGES["bash"].fill(images / "argosay")
    shutil.copy2(tree / _ARGOSAY, images / "argosay")
    for name in ("examples", CRDS):
        shutil.copytree(tree / name, output / name)
    registry.mkdir()
    buildah, address = Buildah(output / "storage"), f"127.0.0.1:{free_port()}"
    with serve(registry, output / "registry.log", address, writable=True):
        for name, entrypoint in (("argoexec", "argoexec"), ("argosay", "/argosay")):
            options = ("--entrypoint", f'["{entrypoint}"]')
            local = buildah.image_of_files(f"localhost/{name}", images / name, *options)
            buildah("push", "--tls-verify=false", local, f"docker://{address}/{name}:{RELEASE}")
    for directory in (buildah.storage, images):
        shutil.rmtree(directory)


_BUILD = SourceBuild(
    name="argo",
    address="https://github.com/argoproj/argo-workflows",
    variable=SOURCE,
    commits={RELEASE: "16a52d67daf2f4a8a76fa8bec02a76a46aa46257"},
    recipe=(CRDS, _ARGOSAY),
    packages={"buildah": "buildah", "git": "git", "docker-registry": "docker-registry"},
    make=_make,
    left_out=("manifests/*.yaml",),
)

if __name__ == "__main__":
    _BUILD.main(RELEASE)
