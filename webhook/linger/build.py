"""Build command for linger: `python -m webhook.linger.build [--out DIR] [--arch amd64,…]`.

The compiler is Zig's C compiler from the PyPI package `ziglang`. It contains musl for every target,
so one machine builds all architectures without a cross toolchain. Builds are reproducible: the same
source and the same version of `ziglang` give the same bytes.

The first build for an architecture takes some seconds, because it also compiles parts of musl.
Zig caches them in `$ZIG_GLOBAL_CACHE_DIR`, or in `zig` below the user's cache directory.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from webhook.linger.musl_build import compile_libc
from webhook.linger.zig import BuildError, run_zig

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "src"
OUT = HERE / "bin"

# Kubernetes' names of the architectures, and Zig's names of the targets.
TARGETS: Mapping[str, str] = {
    "amd64": "x86_64-linux-musl",
    "arm64": "aarch64-linux-musl",
    "s390x": "s390x-linux-musl",
    "ppc64le": "powerpc64le-linux-musl",
}

# Any warning fails the build.
WARNING_FLAGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
# The helper must be small, and C does not need unwind tables.
CODE_FLAGS = (
    "-Os",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fno-stack-protector",
)
COMPILE_FLAGS = ("-std=c11", "-D_GNU_SOURCE", *CODE_FLAGS)
# Without a build ID and debug information, the bytes depend only on the source.
LINK_FLAGS = ("-static", "-nostdlib", "-Wl,--gc-sections,--strip-all,--build-id=none")

_UNDEFINED_SYMBOL_HINT = (
    "add the file of musl that defines it to MUSL_SOURCES in webhook/linger/musl_build.py"
)


def host_arch() -> str:
    """Return Kubernetes' name of this machine's architecture."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def compile_c(
    files: Sequence[Path],
    output: Path,
    *,
    target: str,
    flags: Sequence[str],
    directory: Path = SOURCE,
) -> None:
    """Compile C files to `output`. An existing file stays unchanged if the compiler fails.

    The compiler runs in `directory`. Raises BuildError if it fails.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".build-") as scratch:
        result = Path(scratch) / output.name
        # Relative names, so that the output contains no path of this machine.
        names = [os.path.relpath(file, directory) for file in files]
        run_zig(
            ["cc", "-target", target, *WARNING_FLAGS, *flags, "-o", str(result), *names],
            directory=directory,
            output=output.name,
        )
        result.replace(output)


def build(arch: str, directory: Path, source: Path = SOURCE) -> Path:
    """Compile linger for one architecture to `linger-ARCH` in `directory` and return its path.

    `source` is the directory of the C files. Raises BuildError if the compiler or the linker fails.
    """
    output = directory.absolute() / f"linger-{arch}"
    target = TARGETS[arch]
    with tempfile.TemporaryDirectory(prefix="podsettle-linger-") as scratch:
        linger_object = Path(scratch) / "linger.o"
        files = sorted(source.glob("*.c"))
        compile_c(
            files, linger_object, target=target, flags=(*COMPILE_FLAGS, "-c"), directory=source
        )
        libc = compile_libc(Path(scratch), target=target, flags=CODE_FLAGS)
        try:
            compile_c(
                [linger_object, *libc],
                output,
                target=target,
                flags=(*CODE_FLAGS, *LINK_FLAGS),
                directory=source,
            )
        except BuildError as error:
            if "undefined symbol" not in str(error):
                raise
            raise BuildError(f"{error}\n{_UNDEFINED_SYMBOL_HINT}") from error
    return output


def _architectures(text: str) -> list[str]:
    """Return the architectures in a comma-separated list.

    Raises argparse.ArgumentTypeError for an unknown architecture.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in TARGETS:
            raise argparse.ArgumentTypeError(
                f"unknown architecture {name!r}: choose from {', '.join(TARGETS)}"
            )
    return names


def main(arguments: Sequence[str] | None = None, source: Path = SOURCE) -> int:
    """Run the command line and return its exit code.

    The exit code is 0 for success and 1 for a failed build. For wrong usage, argparse exits with 2.
    `source` is the directory of the C files.
    """
    parser = argparse.ArgumentParser(
        prog="python -m webhook.linger.build", description="Compile the helper linger."
    )
    parser.add_argument("--out", type=Path, default=OUT, help="directory for linger-ARCH")
    parser.add_argument(
        "--arch",
        type=_architectures,
        default=list(TARGETS),
        metavar="ARCH,…",
        help=f"architectures to build for (default: {','.join(TARGETS)})",
    )
    options = parser.parse_args(arguments)
    for arch in options.arch:
        try:
            output = build(arch, options.out, source)
        except BuildError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{output.name}: {output.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
