"""The sources of a release: the committed files, with the names that only a release has.

The repository names no owner, no registry and no address. A release writes them into its copy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

CHART = "charts/podsettle"


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
    def is_rehearsal(self) -> bool:
        """Whether the registry is one of this machine, which speaks HTTP."""
        return self.registry.startswith(("127.0.0.1:", "localhost:"))

    def run(self, *command: str | Path, directory: Path | None = None) -> str:
        """Run a program with the release's time as the time of what it writes. Return its output.

        Raises ReleaseError if the program fails.
        """
        done = subprocess.run(
            [str(word) for word in command],
            cwd=directory,
            env={**os.environ, "SOURCE_DATE_EPOCH": self.epoch, "TZ": "UTC"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            name = Path(command[0]).name
            raise ReleaseError(f"{name}: exit code {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout


def commit_of(checkout: Path) -> tuple[str, str]:
    """Return the hash and the time of the checked-out commit, in seconds since 1970."""
    command = ["git", "-C", str(checkout), "show", "--no-patch", "--format=%H %ct", "HEAD"]
    commit, epoch = subprocess.run(command, capture_output=True, check=True).stdout.decode().split()
    return commit, epoch


def write_source(checkout: Path, release: Release, target: Path) -> None:
    """Write the committed files of a checkout into a directory, with the release's names.

    Raises ReleaseError if the version of the commit is another one.
    """
    packed = target.with_suffix(".tar")
    release.run("git", "-C", checkout, "archive", f"--output={packed.absolute()}", "HEAD")
    shutil.unpack_archive(packed, target, filter="data")
    project, chart = target / "pyproject.toml", target / CHART
    version = tomllib.loads(project.read_text("utf-8"))["project"]["version"]
    if version != release.version:
        raise ReleaseError(f"release {release.version}: pyproject.toml has version {version}")
    page = f"{release.repository}/blob/v{version}"
    urls = {
        "Repository": release.repository,
        "Documentation": f"{page}/docs/README.md",
        "Changelog": f"{page}/CHANGELOG.md",
    }
    lines = "\n".join(f'{name} = "{url}"' for name, url in urls.items())
    _replace(project, "[project.scripts]", f"[project.urls]\n{lines}\n\n[project.scripts]")
    podsettle, linger = (f"{release.registry}/{name}" for name in ("podsettle", "linger"))
    _replace(chart / "values.yaml", '\n  repository: ""\n', f"\n  repository: {podsettle}\n")
    _replace(chart / "values.yaml", '\nlingerImage: ""\n', f"\nlingerImage: {linger}\n")
    _replace(
        chart / "Chart.yaml",
        "\nannotations:\n",
        f"\nhome: {release.repository}\nsources: [{release.repository}]\nannotations:\n"
        "  artifacthub.io/images: |\n"
        f"    - {{name: podsettle, image: {podsettle}:{version}}}\n"
        f"    - {{name: linger, image: {linger}:{version}}}\n",
    )


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


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise ReleaseError(f"release: {path.name}: does not have {old.strip()!r} once")
    path.write_text(text.replace(old, new), encoding="utf-8")
