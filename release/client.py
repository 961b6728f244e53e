"""The Python distributions of a release, the executables of the client, and krew's plugin."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

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
    """Build the wheel and the source distribution. Return the wheel."""
    build = (sys.executable, "-m", "hatchling", "build", "--directory", out.resolve())
    release.run(*build, directory=source)
    return next(out.glob("*.whl"))


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
    release.run(*install, *target, *locked, source / "requirements/client.txt")
    release.run(*install, *target, "--no-deps", wheel)
    remove_machine_files(packages)
    executable = out / f"podsettle-{release.version}-{platform}.pyz"
    release.run(
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


def write_krew_plugin(
    executables: Mapping[str, Path], source: Path, release: Release, out: Path, scratch: Path
) -> None:
    """Write an archive for each platform, and the manifest that names them.

    There is none for Windows, where krew cannot start a zip application.
    """
    downloads = f"{release.repository}/releases/download/v{release.version}"
    platforms = []
    for platform, executable in executables.items():
        system, _, architecture = platform.partition("-")
        if system == "windows":
            continue
        files = scratch / f"plugin-{platform}"
        files.mkdir()
        shutil.copyfile(executable, files / "kubectl-settle")
        shutil.copyfile(source / "LICENSE", files / "LICENSE")
        archive = out / f"kubectl-settle-{release.version}-{platform}.tar.gz"
        release.run(
            *("tar", "--create", "--use-compress-program=gzip --no-name", f"--file={archive}"),
            *("--owner=root:0", "--group=root:0", "--mode=755", f"--mtime=@{release.epoch}"),
            *("--format=ustar", f"--directory={files}", "kubectl-settle", "LICENSE"),
        )
        platforms.append(
            {
                "selector": {"matchLabels": {"os": system, "arch": architecture}},
                "uri": f"{downloads}/{archive.name}",
                "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                "bin": "kubectl-settle",
            }
        )
    version = dockerfile_version()
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "settle"},
        "spec": {
            "version": f"v{release.version}",
            "homepage": release.repository,
            "shortDescription": "Find pods that suffer from runtime defects",
            "description": (
                "Looks for known defects of CRI-O, containerd and the kubelet in a cluster, "
                "explains what podsettle did to pods, and checks policies and installations.\n"
            ),
            "caveats": f"The plugin needs Python {version} as python{version}.\n",
            "platforms": platforms,
        },
    }
    (out / "settle.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False), "utf-8")
