"""Make the parts of a release: `python -m release`.

Everything is written into dist/release. Images and the chart are pushed to a registry. Without
`--registry`, that is one of this machine, which keeps its data in dist/release/registry. The
workflow `release` adds SBOMs, digests and signatures.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from release.chart import package_chart, push_chart, write_manifests
from release.client import PLATFORMS, build_distributions, build_executable, write_krew_plugin
from release.images import build_images, write_helper_sbom
from release.source import Release, ReleaseError, commit_of, release_notes, write_source
from tests.support.node.registry_server import ADDRESS, serve
from tests.support.paths import ROOT
from tools.build import BuildError
from tools.buildah import BuildahError

OUT = ROOT / "dist/release"
# RFC 2606 reserves the domain `example`.
NO_REPOSITORY = "https://repository.example/podsettle"


def make(release: Release, out: Path) -> None:
    """Write the files of a release into a directory, and push its images and its chart."""
    shutil.rmtree(out, ignore_errors=True)
    (out / "registry").mkdir(parents=True)  # Empty, unless this is a rehearsal.
    with tempfile.TemporaryDirectory(prefix="release-") as directory:
        scratch = Path(directory)
        source = scratch / "source"
        write_source(ROOT, release, source)
        notes = release_notes((source / "CHANGELOG.md").read_text("utf-8"), release.version)
        (out / "notes.md").write_text(f"{notes}\n", "utf-8")
        wheel = build_distributions(source, release, out)
        executables = {
            platform: build_executable(platform, source, wheel, release, out, scratch)
            for platform in PLATFORMS
        }
        write_krew_plugin(executables, source, release, out, scratch)
        write_helper_sbom(release, out)
        package = package_chart(source, release, out)
        write_manifests(package, release, out)
        where = (out / "registry", scratch / "registry.log", release.registry.partition("/")[0])
        with serve(*where, writable=True) if release.is_rehearsal else nullcontext():
            references = [*build_images(source, release, scratch), push_chart(package, release)]
        (out / "images.txt").write_text("".join(f"{line}\n" for line in references), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a release, and print its files with their sizes."""
    parser = argparse.ArgumentParser(prog="python -m release", description=main.__doc__)
    parser.add_argument("--version", required=True, help="or a tag, such as v0.1.0")
    parser.add_argument("--repository", default=NO_REPOSITORY, metavar="URL")
    parser.add_argument("--registry", default=ADDRESS, metavar="HOST/PATH")
    options = parser.parse_args(arguments)
    try:
        release = Release(
            options.version.removeprefix("v"),
            options.repository.rstrip("/"),
            options.registry.rstrip("/").lower(),  # Names of images have no capitals.
            *commit_of(ROOT),
        )
        if not release.is_rehearsal and release.repository in ("", NO_REPOSITORY):
            raise ReleaseError("release: name the page of the repository by --repository")
        make(release, OUT)
    except (ReleaseError, BuildError, BuildahError) as error:
        print(error, file=sys.stderr)
        return 1
    for path in sorted(path for path in OUT.iterdir() if path.is_file()):
        print(f"{path.stat().st_size:>12,}  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
