"""Software bills of materials (SBOMs) in SPDX and CycloneDX, and comparisons with other lists."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.utils import canonicalize_name

from release.commands import run
from release.source import Release, ReleaseError
from tools.build import syft

Packages = set[tuple[str, str]]
"""Names and versions of Python packages."""


@dataclass(frozen=True)
class Sbom:
    """The two files about one part of a release."""

    cyclonedx: Path
    spdx: Path

    @classmethod
    def named(cls, name: str, out: Path) -> Sbom:
        """Return the files' names in a directory."""
        return cls(out / f"{name}.cdx.json", out / f"{name}.spdx.json")

    @property
    def options(self) -> Sequence[str]:
        """syft's options to write both."""
        return ("-o", f"cyclonedx-json={self.cyclonedx}", "-o", f"spdx-json={self.spdx}")


def describe(
    name: str,
    target: str,
    release: Release,
    out: Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
) -> Sbom:
    """Write an SBOM of what `target` names in syft's words."""
    sbom = Sbom.named(f"{name}-{release.version}", out)
    source = (f"--source-name={name}", f"--source-version={release.version}")
    scan: list[str | Path] = [syft(), "scan", "--quiet", *source, *options, *sbom.options, target]
    run(
        release,
        *scan,
        environment={"SYFT_CHECK_FOR_APP_UPDATE": "false", **(environment or {})},
    )
    _fix_identity(sbom, release)
    return sbom


def describe_helper(components: Sequence[Mapping[str, Any]], release: Release, out: Path) -> Sbom:
    """Write an SBOM of the helper, in whose executable syft cannot find what it is linked with."""
    sbom = Sbom.named(f"linger-{release.version}", out)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": "linger", "version": release.version}
        },
        "components": components,
    }
    sbom.cyclonedx.write_text(json.dumps(document, indent=1), "utf-8")
    run(release, syft(), "convert", "--quiet", sbom.cyclonedx, "-o", f"spdx-json={sbom.spdx}")
    spdx = json.loads(sbom.spdx.read_bytes())
    spdx["name"] = "linger"
    for package in spdx["packages"]:
        if package["name"] == "unknown":  # syft's name of what the document is about
            package |= {"name": "linger", "versionInfo": release.version}
    sbom.spdx.write_text(json.dumps(spdx), "utf-8")
    _fix_identity(sbom, release)
    return sbom


def _fix_identity(sbom: Sbom, release: Release) -> None:
    """Replace the random identifiers and the time of the run, so that each run gives the same."""
    time = datetime.fromtimestamp(int(release.epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    identifier = uuid.uuid5(uuid.NAMESPACE_URL, f"{release.downloads}/{sbom.cyclonedx.name}")
    cyclonedx = json.loads(sbom.cyclonedx.read_bytes())
    cyclonedx["serialNumber"] = f"urn:uuid:{identifier}"
    cyclonedx["metadata"]["timestamp"] = time
    # syft takes a hash of the directory that it has scanned. Nothing refers to it.
    cyclonedx["metadata"]["component"]["bom-ref"] = str(identifier)
    spdx = json.loads(sbom.spdx.read_bytes())
    spdx["documentNamespace"] = f"{release.downloads}/{sbom.spdx.name}"
    spdx["creationInfo"]["created"] = time
    for path, document in ((sbom.cyclonedx, cyclonedx), (sbom.spdx, spdx)):
        path.write_text(f"{json.dumps(document, indent=1)}\n", "utf-8")


def check_packages(sbom: Sbom, packages: Path, release: Release) -> None:
    """Compare the Python packages in an SBOM with those that pip lists in a directory.

    The base image has packages of its own, so an SBOM may name more. Raises ReleaseError.
    """
    pip = (sys.executable, "-m", "pip", "list", "--format=json", f"--path={packages}")
    installed = {_package(each["name"], each["version"]) for each in json.loads(run(release, *pip))}
    if not installed:
        raise ReleaseError(f"release: pip lists no package in {packages}")
    for path, named in _named_packages(sbom).items():
        if missing := installed - named:
            texts = ", ".join(f"{name} {version}" for name, version in sorted(missing))
            raise ReleaseError(f"release: {path.name} does not name: {texts}")


def check_components(sbom: Sbom, names: set[str]) -> None:
    """Compare the components in both files with a list. Raises ReleaseError if they differ."""
    cyclonedx = json.loads(sbom.cyclonedx.read_bytes())
    spdx = json.loads(sbom.spdx.read_bytes())
    found = {
        sbom.cyclonedx: {each["name"] for each in cyclonedx["components"]},
        sbom.spdx: {each["name"] for each in spdx["packages"]} - {"linger"},
    }
    for path, named in found.items():
        if named != names:
            raise ReleaseError(f"release: {path.name} names {sorted(named)}, not {sorted(names)}")


def _named_packages(sbom: Sbom) -> dict[Path, Packages]:
    cyclonedx = json.loads(sbom.cyclonedx.read_bytes())
    spdx = json.loads(sbom.spdx.read_bytes())
    locators = {
        sbom.cyclonedx: [each.get("purl", "") for each in cyclonedx["components"]],
        sbom.spdx: [
            reference["referenceLocator"]
            for each in spdx["packages"]
            for reference in each.get("externalRefs", ())
        ],
    }
    return {path: _python_packages(texts) for path, texts in locators.items()}


def _python_packages(locators: Sequence[str]) -> Packages:
    """Return what package URLs such as `pkg:pypi/idna@3.20` name."""
    packages = set()
    for text in locators:
        if text.startswith("pkg:pypi/"):
            name, _, version = text.removeprefix("pkg:pypi/").partition("?")[0].partition("@")
            packages.add(_package(name, unquote(version)))
    return packages


def _package(name: str, version: str) -> tuple[str, str]:
    return canonicalize_name(name), version
