"""The Python distributions of a release, and the executables of the client."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from release.commands import run
from release.source import Release
from tools.pythons import dockerfile_version

# The names that uv has for the platforms, each by the name in the executable's file.
PLATFORMS: Mapping[str, str] = {
    "linux-amd64": "x86_64-manylinux_2_28",
    "linux-arm64": "aarch64-manylinux_2_28",
    "darwin-arm64": "aarch64-apple-darwin",
    "windows-amd64": "x86_64-pc-windows-msvc",
}


def build_distributions(source: Path, release: Release, out: Path) -> Path:
    """Build the wheel and the source distribution, and check them. Return the wheel."""
    python = (sys.executable, "-m")
    run(release, *python, "hatchling", "build", "--directory", out.resolve(), directory=source)
    wheel, archive = next(out.glob("*.whl")), next(out.glob("*.tar.gz"))
    run(release, *python, "twine", "check", "--strict", wheel, archive)
    run(release, *python, "check_wheel_contents", wheel)
    return wheel


def build_executable(
    platform: str, source: Path, wheel: Path, release: Release, out: Path, scratch: Path
) -> Path:
    """Build the client for a platform as one file, and return it.

    The file holds all packages of requirements/client.txt and needs Python of the image's version.
    """
    version, packages = dockerfile_version(), scratch / f"packages-{platform}"
    install = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--link-mode", "copy")
    target = (
        *("--python-platform", PLATFORMS[platform], "--python-version", version),
        *("--python", sys.executable, "--target", str(packages)),
    )
    locked = ("--only-binary", ":all:", "--require-hashes", "-r")
    run(release, *install, *target, *locked, source / "requirements/client.txt")
    run(release, *install, *target, "--no-deps", wheel)
    remove_machine_files(packages)
    executable = out / f"podsettle-{release.version}-{platform}.pyz"
    run(
        release,
        *(sys.executable, "-m", "shiv", "--compressed", "--reproducible"),
        *("--console-script", "podsettle", "--python", f"/usr/bin/env python{version}"),
        *("--site-packages", packages, "--output-file", executable),
    )
    return executable


def remove_machine_files(packages: Path) -> None:
    """Remove the installed files that depend on this machine, also from the packages' lists.

    Scripts have the path of Python here, and uv records the wheel's path and time.
    """
    names = ("bin/*", "Scripts/*", "*.dist-info/direct_url.json", "*.dist-info/uv_cache.json")
    for name in names:
        for file in packages.glob(name):
            file.unlink()
    for record in packages.glob("*.dist-info/RECORD"):
        lines = record.read_text("utf-8").splitlines(keepends=True)
        kept = [line for line in lines if (packages / line.rsplit(",", 2)[0]).is_file()]
        record.write_text("".join(kept), "utf-8")
