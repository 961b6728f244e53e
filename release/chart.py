"""The chart's package, and the manifests for clusters without Helm."""

from __future__ import annotations

import os
import re
from pathlib import Path

from release.source import CHART, Release, ReleaseError
from tools.build import tool

NAMESPACE = "podsettle-system"


def package_chart(source: Path, release: Release, out: Path) -> Path:
    """Write the chart's package into a directory, and return it."""
    release.run(tool("helm"), "package", source / CHART, "--destination", out)
    return out / f"podsettle-{release.version}.tgz"


def push_chart(package: Path, release: Release) -> str:
    """Push the package to the release's registry. Return its name with its digest."""
    plain = ("--plain-http",) if release.is_rehearsal else ()
    # Helm writes the time of the file into the chart's manifest.
    os.utime(package, (int(release.epoch), int(release.epoch)))
    repository = f"{release.registry}/charts"
    pushed = release.run(tool("helm"), "push", package, f"oci://{repository}", *plain)
    found = re.search(r"^Digest: (sha256:[0-9a-f]{64})$", pushed, re.MULTILINE)
    if found is None:
        raise ReleaseError(f"helm push: no digest: {pushed}")
    return f"{repository}/podsettle@{found[1]}"


def write_manifests(package: Path, release: Release, out: Path) -> None:
    """Write `install.yaml`, and beside it a kustomization that has it as its base."""
    options = ("--namespace", NAMESPACE, "--include-crds")
    rendered = release.run(tool("helm"), "template", "podsettle", package, *options)
    namespace = f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n"
    (out / "install.yaml").write_text(f"{namespace}{rendered}", encoding="utf-8")
    kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
    (out / "kustomization.yaml").write_text(f"{kustomization}resources: [install.yaml]\n")
