"""Make all parts of a release that need no network of a publisher: `python -m release`.

Everything is written into dist/release. Images and the chart are pushed to a registry. Without
`--registry`, that is one of this machine, which keeps its data in dist/release/registry.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from release.base import pin_base
from release.distributions import PLATFORMS, build_distributions, build_executable
from release.helper import components, linked_components
from release.images import PushedImage, build_images, installed_packages
from release.krew import validate_krew_manifest, write_krew_manifest
from release.manifests import package_chart, push_chart, write_manifests
from release.sboms import check_components, check_packages, describe, describe_helper
from release.signatures import rehearsal_signer, workflow_signer
from release.source import Release, ReleaseError, commit_of, release_notes, write_source
from tests.support.node.registry_server import ADDRESS, serve
from tests.support.paths import ROOT
from tools.build import BuildError
from tools.buildah import BuildahError

OUT = ROOT / "dist/release"
# RFC 2606 reserves the domain `example`.
NO_REPOSITORY = "https://repository.example/podsettle"
SUMS = "SHA256SUMS"


def make(release: Release, local_base: bool, out: Path) -> list[PushedImage]:
    """Write all files of a release into a directory, and push its images and its chart."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="release-") as directory:
        scratch = Path(directory)
        source = scratch / "source"
        write_source(ROOT, release, source)
        base = None if local_base else pin_base(source / "Dockerfile")
        notes = release_notes((source / "CHANGELOG.md").read_text("utf-8"), release.version)
        (out / "notes.md").write_text(f"{notes}\n", "utf-8")
        wheel = build_distributions(source, release, out)
        executables = {
            platform: build_executable(platform, source, wheel, release, out, scratch)
            for platform in PLATFORMS
        }
        write_krew_manifest(executables, source, release, out)
        validate_krew_manifest(release, out, scratch)
        describe_parts(release, out, scratch)
        package = package_chart(source, release, out)
        write_manifests(package, release, out)
        with _serve_local_registry(release, out, scratch):
            images = build_images(source, release, base, scratch)
            references = [*(image.reference for image in images), push_chart(package, release)]
            describe_images(images, release, out, scratch)
            write_sums(out, references)
            if release.is_insecure:
                signer = rehearsal_signer(release, out, scratch)
            else:
                signer = workflow_signer(release)
            signer.sign_images(references)
            signer.sign_file(out / SUMS)
    return images


def describe_parts(release: Release, out: Path, scratch: Path) -> None:
    """Write SBOMs of the client with its locked packages, and of the helper."""
    packages = scratch / "packages-linux-amd64"
    client = describe("podsettle-client", f"dir:{packages}", release, out)
    check_packages(client, packages, release)
    helper = scratch / "helper"
    helper.mkdir()
    linger = describe_helper(components(release), release, out)
    check_components(linger, linked_components(helper))


def describe_images(
    images: Sequence[PushedImage], release: Release, out: Path, scratch: Path
) -> None:
    """Write an SBOM of podsettle's image for each architecture."""
    (image,) = (each for each in images if each.name == "podsettle")
    http = {"SYFT_REGISTRY_INSECURE_USE_HTTP": str(release.is_insecure).lower()}
    for architecture in image.architectures:
        sbom = describe(
            f"podsettle-image-{architecture}",
            f"registry:{image.reference}",
            release,
            out,
            f"--platform=linux/{architecture}",
            environment=http,
        )
        check_packages(sbom, installed_packages(image, architecture, release, scratch), release)


def _serve_local_registry(
    release: Release, out: Path, scratch: Path
) -> AbstractContextManager[object]:
    """Serve the release's registry, if it is one of this machine."""
    if not release.is_insecure:
        return nullcontext()
    data = out / "registry"
    data.mkdir()
    address = release.registry.partition("/")[0]
    return serve(data, scratch / "registry.log", address, writable=True)


def write_sums(out: Path, references: Sequence[str]) -> None:
    """Write the names of images and chart, and the digests of all files for `sha256sum --check`."""
    (out / "images.txt").write_text("".join(f"{line}\n" for line in references), "utf-8")
    files = sorted(path for path in out.iterdir() if path.is_file())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    (out / SUMS).write_text("".join(f"{line}\n" for line in lines), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a release, and print its files with their sizes."""
    parser = argparse.ArgumentParser(prog="python -m release", description=main.__doc__)
    parser.add_argument("--version", required=True, help="or a tag, such as v0.1.0")
    parser.add_argument("--repository", default=NO_REPOSITORY, metavar="URL")
    parser.add_argument("--registry", default=ADDRESS, metavar="HOST/PATH")
    parser.add_argument(
        "--local-base",
        action="store_true",
        help="build podsettle's image on a Python of this machine, for its architecture only",
    )
    options = parser.parse_args(arguments)
    try:
        release = Release(
            options.version.removeprefix("v"),
            options.repository.rstrip("/"),
            options.registry.rstrip("/").lower(),  # Names of images have no capitals.
            *commit_of(ROOT),
        )
        if not release.is_insecure and release.repository in ("", NO_REPOSITORY):
            raise ReleaseError("release: name the page of the repository by --repository")
        images = make(release, options.local_base, OUT)
    except (ReleaseError, BuildError, BuildahError) as error:
        print(error, file=sys.stderr)
        return 1
    for path in sorted(OUT.iterdir()):
        if path.is_file():
            print(f"{path.stat().st_size:>12,}  {path.name}")
    for image in images:
        print(f"{image.name} for {', '.join(image.architectures)}: {image.reference}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
