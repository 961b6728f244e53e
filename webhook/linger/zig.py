"""Zig's C compiler, from the PyPI package `ziglang`."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


class BuildError(Exception):
    """A failed build. The message contains the compiler's error messages, if there are any."""


def run_zig(arguments: Sequence[str], *, directory: Path, output: str) -> None:
    """Run `zig ARGUMENTS` in `directory`.

    Raises BuildError if Zig fails. Its message begins with `output`, the name of the built file.
    """
    process = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "ziglang", *arguments],
        cwd=directory,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise BuildError(f"{output}: {process.stderr.strip() or process.stdout.strip()}")


@functools.cache
def zig_library() -> Path:
    """Return the directory `lib` of the installed Zig, with the sources of its C libraries.

    Raises BuildError if the package ziglang is not installed.
    """
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise BuildError("ziglang is not installed: pip install -r requirements/linger.txt")
    return Path(spec.origin).parent / "lib"


def _environment() -> dict[str, str]:
    """Return the environment variables for Zig, with a writable cache directory."""
    environment = dict(os.environ)
    if "ZIG_GLOBAL_CACHE_DIR" not in environment:
        environment["ZIG_GLOBAL_CACHE_DIR"] = str(_cache_directory())
    environment.setdefault("ZIG_LOCAL_CACHE_DIR", environment["ZIG_GLOBAL_CACHE_DIR"])
    return environment


def _cache_directory() -> Path:
    """Return a writable directory for Zig's cache.

    Raises BuildError if the fallback directory belongs to another user.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = Path(home) / "zig"
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        if os.access(cache, os.W_OK | os.X_OK):
            return cache
    # The user has no writable home directory, as in some image builds. The directory below /tmp
    # must belong to this user, because its owner can write manipulated object files to it.
    cache = Path(tempfile.gettempdir()) / f"podsettle-zig-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise BuildError(f"{cache} belongs to another user: set ZIG_GLOBAL_CACHE_DIR")
    return cache
