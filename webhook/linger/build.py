"""Compile linger: `python -m webhook.linger.build [--out DIR] [--arch amd64,…]`.

The compiler is Zig's C compiler from PyPI (`ziglang`), which brings musl for every target, so that
one machine builds all four and no cross toolchain has to be installed. The same source and the same
version of `ziglang` give the same bytes.

The first build for an architecture takes about half a minute, because Zig compiles musl. It keeps
it in its cache: `$ZIG_GLOBAL_CACHE_DIR`, or `zig` in the user's cache directory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "src"
OUT = HERE / "bin"

TARGETS: Mapping[str, str] = {
    "amd64": "x86_64-linux-musl",
    "arm64": "aarch64-linux-musl",
    "s390x": "s390x-linux-musl",
    "ppc64le": "powerpc64le-linux-musl",
}
"""Architectures by the names that Kubernetes gives them, and what Zig calls the target."""

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
FLAGS = (
    "-std=c11",
    "-D_GNU_SOURCE",
    "-static",
    "-Os",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fno-stack-protector",
    # No build id, no debug information, no path: the bytes depend on the source alone.
    "-Wl,--gc-sections,--strip-all,--build-id=none",
)


class BuildError(Exception):
    """Nothing was built; the message says why, in the compiler's words if it was the compiler."""


def host_arch() -> str:
    """The architecture of this machine, by the name that Kubernetes gives it."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def sources() -> list[Path]:
    """The C files that make up linger."""
    return sorted(SOURCE.glob("*.c"))


def compile_c(
    files: Sequence[Path], output: Path, *, target: str, flags: Sequence[str] = FLAGS
) -> None:
    """Compile C files into `output`, which is replaced only once the compiler has succeeded."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".build-") as scratch:
        result = Path(scratch) / output.name
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *WARNINGS, *flags]
        # Relative names, so that no path of this machine can reach the output.
        names = [os.path.relpath(file, SOURCE) for file in files]
        done = subprocess.run(  # noqa: S603
            [*command, "-o", str(result), *names],
            cwd=SOURCE,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BuildError(f"{output.name}: {done.stderr.strip() or done.stdout.strip()}")
        result.replace(output)


def build(arch: str, directory: Path) -> Path:
    """Compile linger for one architecture; returns the executable, `linger-ARCH`."""
    output = directory.absolute() / f"linger-{arch}"
    compile_c(sources(), output, target=TARGETS[arch])
    return output


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


def _architectures(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in TARGETS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(TARGETS)}")
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0 once all are built, 1 if the compiler refused, 2 on bad usage."""
    parser = argparse.ArgumentParser(
        prog="python -m webhook.linger.build", description="Compile the static helper linger."
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where to write linger-ARCH")
    parser.add_argument(
        "--arch",
        type=_architectures,
        default=list(TARGETS),
        metavar="ARCH,…",
        help=f"what to build for (default: {','.join(TARGETS)})",
    )
    options = parser.parse_args(arguments)
    for arch in options.arch:
        try:
            output = build(arch, options.out)
        except BuildError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{output.name}: {output.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
