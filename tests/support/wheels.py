"""The packages that the images need, downloaded once and kept outside the checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.paths import ROOT


def downloaded_wheels(python: Path, requirements: Sequence[str]) -> Path:
    """A directory with the wheels of `requirements/NAME.txt` for `python`."""
    files = [ROOT / "requirements" / f"{name}.txt" for name in requirements]
    version = subprocess.run([python, "-V"], capture_output=True, check=True).stdout
    key = hashlib.sha256(b"\0".join([version, *(file.read_bytes() for file in files)])).hexdigest()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "podsettle/wheels"
    kept = caches / key[:16]
    if kept.is_dir():
        return kept
    caches.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=caches) as scratch:
        named = [argument for file in files for argument in ("-r", str(file))]
        command = [str(python), "-m", "pip", "download", "--quiet", "--require-hashes"]
        download = Path(scratch) / "wheels"
        subprocess.run(
            [*command, "--only-binary", ":all:", "--dest", str(download), *named], check=True
        )
        download.rename(kept)
        for other in caches.iterdir():
            if other != kept and other != Path(scratch):
                shutil.rmtree(other)
    return kept
