"""The images of a release, built by buildah, which needs no daemon."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from release.source import Release
from tests.support.node.images import local_packages
from tools.base_image import PATH, write_root_fs
from tools.buildah import Buildah
from tools.pythons import dockerfile_python
from webhook.linger.zig import zig_library

ARCHITECTURES: Mapping[str, Sequence[str]] = {
    "podsettle": ("amd64", "arm64"),
    "linger": ("amd64", "arm64", "s390x", "ppc64le"),
}
_LOCAL_BASE, _LISTS = "localhost/python", "localhost/release"
_MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def build_images(source: Path, release: Release, scratch: Path) -> list[str]:
    """Build both images and push them, each as a list of its architectures.

    Return their names with their digests. A rehearsal has a Python of this machine as the base, and
    builds podsettle's image for this machine's architecture only.
    """
    buildah = Buildah(scratch / "storage")
    options = _make_local_base(buildah, release, scratch) if release.is_rehearsal else []
    insecure = ("--tls-verify=false",) if release.is_rehearsal else ()
    references = []
    for name, architectures in ARCHITECTURES.items():
        if release.is_rehearsal and name == "podsettle":
            architectures = (_MACHINE,)
        for architecture in architectures:
            _build(buildah, name, architecture, source, release, options)
        digest, image = scratch / f"{name}.digest", f"{release.registry}/{name}"
        flags = ("--all", "--format", "oci", "--digestfile", str(digest))
        target = f"docker://{image}:{release.version}"
        buildah("manifest", "push", *flags, *insecure, f"{_LISTS}/{name}", target)
        references.append(f"{image}@{digest.read_text().strip()}")
    return references


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
        f"--build-arg=BUILDPLATFORM=linux/{_MACHINE}",
        *(f"--label=org.opencontainers.image.{key}={value}" for key, value in labels.items()),
        *("--target", name, "--manifest", f"{_LISTS}/{name}"),
        source,
    )


def write_helper_sbom(release: Release, out: Path) -> None:
    """Write an SBOM of the helper, in whose executable no scanner finds what it is linked with."""
    header = (zig_library() / "libc/musl/src/internal/version.h").read_text("utf-8")
    components = [
        {
            "type": "library",
            "name": name,
            "version": number,
            "licenses": [{"license": {"id": licence}}],
            "purl": f"pkg:{address}@{number}",
        }
        for name, number, licence, address in (
            ("podsettle", release.version, "Apache-2.0", "pypi/podsettle"),
            ("musl", header.split('"')[1], "MIT", "generic/musl"),
            ("zig", version("ziglang"), "MIT", "pypi/ziglang"),
        )
    ]
    about = {"type": "application", "name": "linger", "version": release.version}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": about},
        "components": components,
    }
    path = out / f"linger-{release.version}.cdx.json"
    path.write_text(f"{json.dumps(document, indent=1)}\n", "utf-8")
