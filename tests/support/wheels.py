"""The packages that the images need, downloaded once and kept outside the checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.paths import ROOT

# The tests of another checkout may use a directory at the same time.
_UNUSED_SECONDS = 7 * 24 * 3600


def downloaded_wheels(python: Path, requirements: Sequence[str]) -> Path:
    """A directory with the wheels of `requirements/NAME.txt` for `python`."""
    files = [ROOT / "requirements" / f"{name}.txt" for name in requirements]
    version = subprocess.run([python, "-V"], capture_output=True, check=True).stdout
    key = hashlib.sha256(b"\0".join([version, *(file.read_bytes() for file in files)])).hexdigest()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "podsettle/wheels"
    kept = caches / key[:16]
    if kept.is_dir():
        os.utime(kept)
        return kept
    caches.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=caches) as scratch:
        named = [argument for file in files for argument in ("-r", str(file))]
        command = [str(python), "-m", "pip", "download", "--quiet", "--require-hashes"]
        download = Path(scratch) / "wheels"
        subprocess.run(
            [*command, "--only-binary", ":all:", "--dest", str(download), *named], check=True
        )
        try:
            download.rename(kept)
        except OSError:
            # The tests of another checkout have downloaded the same.
            assert kept.is_dir()
        for other in caches.iterdir():
            if time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
                shutil.rmtree(other)
    return kept
