"""Tekton's images, built from its source: `python -m tests.support.node.tekton_build`.

The images are kept as the data of a registry, and the manifests beside them.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.support.node.registry_server import PROGRAM as REGISTRY
from tests.support.node.registry_server import serve
from tests.support.process import free_port
from tools.buildah import Buildah
from tools.source_build import SourceBuild, build_go

RELEASE = "v1.15.0"
_COMMITS = {RELEASE: "70f730815249a12aa725266fba7f3ff39653aaea"}
# Of the images that Tekton's controller names, TaskRuns without sidecars use only the entrypoint.
IMAGES = ("controller", "webhook", "entrypoint")
_FLAGS = ("-ldflags=-s -w",)


@dataclass(frozen=True)
class TektonBuild:
    """A build of Tekton."""

    directory: Path

    @property
    def manifests(self) -> Path:
        """The directory `config` of Tekton's repository."""
        return self.directory / "config"

    @property
    def registry(self) -> Path:
        """The data of a registry with an image of each name in `IMAGES`, tagged `latest`."""
        return self.directory / "registry"


def find_tekton() -> TektonBuild | None:
    """Return the build of RELEASE, or None if it is not built yet."""
    home = _BUILD.find(RELEASE)
    return TektonBuild(home) if home is not None else None


def _make(tree: Path, output: Path) -> None:
    for name in IMAGES:
        # Tekton expects the path of images that its own build tool `ko` makes.
        program = output / "root" / name / "ko-app" / name
        build_go(tree, f"./cmd/{name}", program, *_FLAGS, environment={"CGO_ENABLED": "0"})
    shutil.copytree(tree / "config", output / "config")
    registry = output / "registry"
    registry.mkdir()
    buildah = Buildah(output / "storage")
    address = f"127.0.0.1:{free_port()}"
    with serve(registry, output / "registry.log", address, writable=True):
        for name in IMAGES:
            local = buildah.image_of_files(
                f"localhost/tekton/{name}",
                output / "root" / name,
                *("--entrypoint", f'["/ko-app/{name}"]'),
            )
            buildah("push", "--tls-verify=false", local, f"docker://{address}/tekton/{name}:latest")
    shutil.rmtree(output / "storage")
    shutil.rmtree(output / "root")


_BUILD = SourceBuild(
    name="tekton",
    address="https://github.com/tektoncd/pipeline",
    variable="TEKTON_SOURCE",
    commits=_COMMITS,
    recipe=(_FLAGS, IMAGES),
    packages={"buildah": "buildah", "git": "git", REGISTRY: "docker-registry"},
    make=_make,
)

if __name__ == "__main__":
    _BUILD.main(RELEASE)
