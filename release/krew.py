"""The manifest with which krew, kubectl's manager of plugins, installs the client."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from release.commands import run, write_archive
from release.source import Release
from tools.build import krew_programs
from tools.pythons import dockerfile_version

_PLUGIN = "settle"
# The validator runs `kubectl krew`. kubectl itself would only start this plugin.
_KUBECTL = '#!/bin/sh\nshift\nexec kubectl-krew "$@"\n'


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


def validate_krew_manifest(release: Release, out: Path, scratch: Path) -> None:
    """Let krew validate the manifest and install the plugin for each platform.

    krew downloads the archives, so this machine serves them, and a copy of the manifest names it.
    Raises ReleaseError if krew refuses anything.
    """
    krew = krew_programs()
    directory = scratch / "krew"
    directory.mkdir()
    kubectl = directory / "kubectl"
    kubectl.write_text(_KUBECTL)
    kubectl.chmod(0o755)
    path = os.pathsep.join([str(directory), str(krew), os.environ["PATH"]])
    handler = partial(_QuietHandler, directory=out)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            text = (out / f"{_PLUGIN}.yaml").read_text("utf-8")
            address = f"http://127.0.0.1:{server.server_port}"
            copy = directory / f"{_PLUGIN}.yaml"
            copy.write_text(text.replace(release.downloads, address), "utf-8")
            run(
                release,
                *(krew / "validate-krew-manifest", "-manifest", copy),
                environment={"PATH": path},
            )
        finally:
            server.shutdown()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""
