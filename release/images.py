"""The images of a release, built by buildah, which needs no daemon."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from release.source import Release
from tests.support.node.images import local_packages
from tools.base_image import PATH, write_root_fs
from tools.buildah import Buildah
from tools.pythons import dockerfile_python

ARCHITECTURES: Mapping[str, Sequence[str]] = {
    "podsettle": ("amd64", "arm64"),
    "linger": ("amd64", "arm64", "s390x", "ppc64le"),
}
_LOCAL_BASE = "localhost/python"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class PushedImage:
    """An image in the registry."""

    name: str
    architectures: Sequence[str]
    reference: str
    """With the digest of the list of architectures."""


def build_images(
    source: Path, release: Release, base: str | None, scratch: Path
) -> list[PushedImage]:
    """Build both images and push them, each as a list of its architectures.

    `base` is the name of the Dockerfile's base image. Without it, the base is a Python of this
    machine, and podsettle's image is built for this machine's architecture only.
    """
    buildah = Buildah(scratch / "storage")
    options = [] if base else _make_local_base(buildah, release, scratch)
    pushed = []
    for name, architectures in ARCHITECTURES.items():
        if base is None and name == "podsettle":
            architectures = (_machine(),)
        for architecture in architectures:
            labels = _label_base(base) if base and name == "podsettle" else []
            _build(buildah, name, architecture, source, release, [*options, *labels])
        digest = scratch / f"{name}.digest"
        insecure = ("--tls-verify=false",) if release.is_insecure else ()
        target = f"docker://{release.image(name)}:{release.version}"
        flags = ("--all", "--format", "oci", "--digestfile", str(digest))
        buildah("manifest", "push", *flags, *insecure, _list_name(name), target)
        reference = f"{release.image(name)}@{digest.read_text().strip()}"
        pushed.append(PushedImage(name, architectures, reference))
    return pushed


def _label_base(base: str) -> list[str]:
    name, _, digest = base.partition("@")
    labels = {"base.name": name, "base.digest": digest}
    return [f"--label=org.opencontainers.image.{key}={value}" for key, value in labels.items()]


def installed_packages(
    image: PushedImage, architecture: str, release: Release, scratch: Path
) -> Path:
    """Pull podsettle's image, and return the directory of the Python packages in it."""
    buildah = Buildah(scratch / f"pulled-{architecture}")
    insecure = ("--tls-verify=false",) if release.is_insecure else ()
    container = buildah("from", "--arch", architecture, *insecure, image.reference)
    root = Path(buildah("mount", container))
    (packages,) = root.glob("opt/podsettle/lib/python*/site-packages")
    return packages


def _make_local_base(buildah: Buildah, release: Release, scratch: Path) -> list[str]:
    """Make the base image. Return the options of a build on it, without network."""
    python = dockerfile_python() or Path(sys.executable)
    write_root_fs(scratch / "base", python)
    (scratch / "Dockerfile").write_text(f"FROM scratch\nCOPY base /\nENV PATH={PATH}\n")
    time = f"--timestamp={release.epoch}"
    buildah("build", "--isolation=chroot", time, "--tag", _LOCAL_BASE, scratch)
    base = ("--pull-never", f"--build-arg=PYTHON={_LOCAL_BASE}")
    return [*local_packages(scratch, python), *base]


def _build(
    buildah: Buildah,
    name: str,
    architecture: str,
    source: Path,
    release: Release,
    options: Sequence[str],
) -> None:
    labels = {
        "version": release.version,
        "revision": release.commit,
        "source": release.repository,
    }
    buildah(
        *("build", "--isolation=chroot", "--no-cache", "--identity-label=false", *options),
        *(f"--timestamp={release.epoch}", f"--platform=linux/{architecture}"),
        # buildah 1.28 gives this variable the platform of the image instead of the machine's.
        f"--build-arg=BUILDPLATFORM=linux/{_machine()}",
        *(f"--label=org.opencontainers.image.{key}={value}" for key, value in labels.items()),
        *("--target", name, "--manifest", _list_name(name)),
        source,
    )


def _machine() -> str:
    return _MACHINES[platform.machine()]


def _list_name(name: str) -> str:
    return f"localhost/release/{name}"
