"""The manifest with which krew, kubectl's manager of plugins, installs the client."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import yaml

from release.commands import write_archive
from release.source import Release
from tests.support.pythons import dockerfile_version

_PLUGIN = "settle"


def write_krew_manifest(
    executables: Mapping[str, Path], source: Path, release: Release, out: Path
) -> None:
    """Write an archive for each platform, and the manifest that names them.

    There is none for Windows, where krew cannot start a zip application.
    """
    licence = (source / "LICENSE").read_bytes()
    platforms = []
    for platform, executable in executables.items():
        system, _, architecture = platform.partition("-")
        if system == "windows":
            continue
        archive = out / f"kubectl-settle-{release.version}-{platform}.tar.gz"
        write_archive(
            archive, {"kubectl-settle": executable.read_bytes(), "LICENSE": licence}, release
        )
        platforms.append(
            {
                "selector": {"matchLabels": {"os": system, "arch": architecture}},
                "uri": f"{release.downloads}/{archive.name}",
                "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                "bin": "kubectl-settle",
            }
        )
    version = dockerfile_version()
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": _PLUGIN},
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
    (out / f"{_PLUGIN}.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False), "utf-8")
