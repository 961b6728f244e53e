"""Programs that a release runs, and archives whose bytes depend on their contents alone."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from release.source import Release, ReleaseError


def run(
    release: Release,
    *command: str | Path,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a program with the release's time as the time of what it writes. Return its output.

    `environment` has variables in addition to those of this process. Raises ReleaseError if the
    program fails.
    """
    done = subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        env={**os.environ, "SOURCE_DATE_EPOCH": release.epoch, "TZ": "UTC", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        name = Path(command[0]).name
        raise ReleaseError(f"{name}: exit code {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def write_archive(path: Path, files: Mapping[str, bytes], release: Release) -> None:
    """Write a .tar.gz of executable files, with the release's time and without owners."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o755, int(release.epoch)
            archive.addfile(entry, io.BytesIO(content))
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=int(release.epoch)))
