"""Run Zig's C compiler, which the package `ziglang` brings."""

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
    """Nothing was built; the message gives the reason, in the compiler's words if it refused."""


def run_zig(arguments: Sequence[str], *, directory: Path, output: str) -> None:
    """Run `zig ARGUMENTS` in `directory`.

    `output` names what is built, for the message of the BuildError that a refusal raises.
    """
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "ziglang", *arguments],
        cwd=directory,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"{output}: {done.stderr.strip() or done.stdout.strip()}")


@functools.cache
def zig_library() -> Path:
    """The directory `lib` of the installed Zig: the sources of its C libraries."""
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        raise BuildError("ziglang is not installed: pip install -r requirements/linger.txt")
    return Path(found.origin).parent / "lib"


def _environment() -> dict[str, str]:
    """The environment for Zig, with a cache that is writable and outside the working directory."""
    environment = dict(os.environ)
    if "ZIG_GLOBAL_CACHE_DIR" not in environment:
        environment["ZIG_GLOBAL_CACHE_DIR"] = str(_cache_directory())
    environment.setdefault("ZIG_LOCAL_CACHE_DIR", environment["ZIG_GLOBAL_CACHE_DIR"])
    return environment


def _cache_directory() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = Path(home) / "zig"
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        if os.access(cache, os.W_OK | os.X_OK):
            return cache
    # A build user without a home. The directory must be its own: others could plant objects in it.
    cache = Path(tempfile.gettempdir()) / f"podsettle-zig-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise BuildError(f"{cache} belongs to another user: set ZIG_GLOBAL_CACHE_DIR")
    return cache
