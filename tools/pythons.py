"""Pythons of other versions on this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.paths import ROOT
from tools.build import search


def dockerfile_version() -> str:
    """Return the Python of the default base image, such as `3.13`."""
    return search(ROOT / "Dockerfile", r"^ARG PYTHON=python:(\d+\.\d+)")


def dockerfile_python() -> Path | None:
    """Return a Python of that version from PATH or from pyenv, or None."""
    version = dockerfile_version()
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    installed = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    for candidate in (f"python{version}", *map(str, installed)):
        code = "import sys; print(sys.executable)"
        try:
            done = subprocess.run(
                [candidate, "-c", code], capture_output=True, text=True, check=False
            )
        except OSError:
            continue
        if done.returncode == 0:  # pyenv puts a name on the PATH for each version that it could run
            return Path(done.stdout.strip())
    return None
