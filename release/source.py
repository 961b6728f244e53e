"""The sources of a release: the committed files, with the names that only a release has.

The repository names no owner, no registry and no address. A release writes them into its copy.
"""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml


class ReleaseError(Exception):
    """The release cannot be made. The message says why, and what to do."""


@dataclass(frozen=True)
class Release:
    """What a release is called, and where its parts are published."""

    version: str
    repository: str
    """The URL of the repository's page, without a slash at its end."""
    registry: str
    """The registry of the images and the chart, with a path, such as `registry.example/team`."""
    commit: str
    epoch: str
    """The time of the commit in seconds since 1970, which all timestamps of the release have."""

    @property
    def is_insecure(self) -> bool:
        """Whether the registry is one of this machine, which speaks HTTP."""
        return self.registry.startswith(("127.0.0.1:", "localhost:"))

    def image(self, name: str) -> str:
        """Return the name of an image without a tag."""
        return f"{self.registry}/{name}"

    @property
    def downloads(self) -> str:
        """The address of the directory that holds the release's files."""
        return f"{self.repository}/releases/download/v{self.version}"


def commit_of(checkout: Path) -> tuple[str, str]:
    """Return the hash and the time of the checked-out commit, in seconds since 1970."""
    shown = _git(checkout, "show", "--no-patch", "--format=%H %ct", "HEAD").decode()
    commit, epoch = shown.split()
    return commit, epoch


def write_source(checkout: Path, release: Release, target: Path) -> None:
    """Write the committed files of a checkout into a directory, with the release's names.

    Raises ReleaseError if the version of the commit is another one.
    """
    with tarfile.open(fileobj=io.BytesIO(_git(checkout, "archive", "HEAD"))) as archive:
        archive.extractall(target, filter="data")
    project = target / "pyproject.toml"
    version = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    if version != release.version:
        raise ReleaseError(
            f"release {release.version}: pyproject.toml has version {version}: change it, run "
            "`make docs`, and commit"
        )
    _replace(project, "[project.scripts]", f"{_urls(release)}\n[project.scripts]")
    values = target / "charts/podsettle/values.yaml"
    _replace(values, '\n  repository: ""\n', f"\n  repository: {release.image('podsettle')}\n")
    _replace(values, '\nlingerImage: ""\n', f"\nlingerImage: {release.image('linger')}\n")
    _describe_chart(target / "charts/podsettle", release)


def release_notes(changelog: str, version: str) -> str:
    """Return the section of a version. Before it has one, that is the section *Unreleased*."""
    for name in (re.escape(version), "Unreleased"):
        section = rf"^## {name}\b.*\n((?:.*\n)*?)(?=## |\Z)"
        found = re.search(section, changelog, re.MULTILINE)
        if found and found[1].strip():
            return found[1].strip()
    raise ReleaseError(
        f"release {version}: CHANGELOG.md has neither a section for it nor Unreleased"
    )


def _urls(release: Release) -> str:
    page = f"{release.repository}/blob/v{release.version}"
    return (
        "[project.urls]\n"
        f'Repository = "{release.repository}"\n'
        f'Documentation = "{page}/docs/README.md"\n'
        f'Changelog = "{page}/CHANGELOG.md"\n'
    )


def _describe_chart(chart: Path, release: Release) -> None:
    """Write into Chart.yaml what Artifact Hub and users of the package want to know."""
    path = chart / "Chart.yaml"
    metadata = yaml.safe_load(path.read_text(encoding="utf-8"))
    (crd,) = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in chart.glob("crds/*"))
    names, (version,) = crd["spec"]["names"], crd["spec"]["versions"]
    metadata |= {"home": release.repository, "sources": [release.repository]}
    metadata["annotations"] |= {
        "artifacthub.io/images": _as_text(
            [
                {"name": name, "image": f"{release.image(name)}:{release.version}"}
                for name in ("podsettle", "linger")
            ]
        ),
        "artifacthub.io/crds": _as_text(
            [
                {
                    "kind": names["kind"],
                    "version": version["name"],
                    "name": crd["metadata"]["name"],
                    "displayName": names["kind"],
                    "description": version["schema"]["openAPIV3Schema"]["description"],
                }
            ]
        ),
    }
    path.write_text(yaml.safe_dump(metadata, sort_keys=False), encoding="utf-8")


def _as_text(items: list[Mapping[str, str]]) -> str:
    return yaml.safe_dump(items, sort_keys=False)


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise ReleaseError(f"release: {path.name}: does not have {old.strip()!r} once")
    path.write_text(text.replace(old, new), encoding="utf-8")


def _git(checkout: Path, *arguments: str) -> bytes:
    done = subprocess.run(
        ["git", "-C", str(checkout), *arguments], capture_output=True, check=False
    )
    if done.returncode != 0:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.decode().strip()}")
    return done.stdout
