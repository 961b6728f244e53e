"""Compile linger: `python -m webhook.linger.build [--out DIR] [--arch amd64,…]`.

The compiler is Zig's C compiler from PyPI (`ziglang`), which brings musl for every target, so that
one machine builds all four and no cross toolchain has to be installed. The same source and the same
version of `ziglang` give the same bytes.

The first build for an architecture takes some seconds, because its part of musl is compiled too.
Zig keeps that in its cache: `$ZIG_GLOBAL_CACHE_DIR`, or `zig` in the user's cache directory.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from webhook.linger.libc import compile_libc
from webhook.linger.zig import BuildError, run_zig

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
CODE = (
    "-Os",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fno-stack-protector",
)
FLAGS = ("-std=c11", "-D_GNU_SOURCE", *CODE)
# No build id, no debug information, no path: the bytes depend on the source alone.
LINK = ("-static", "-nostdlib", "-Wl,--gc-sections,--strip-all,--build-id=none")

UNDEFINED = "add the file of musl that defines it to MUSL_SOURCES in webhook/linger/libc.py"


def host_arch() -> str:
    """The architecture of this machine, by the name that Kubernetes gives it."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def sources() -> list[Path]:
    """The C files that make up linger."""
    return sorted(SOURCE.glob("*.c"))


def compile_c(files: Sequence[Path], output: Path, *, target: str, flags: Sequence[str]) -> None:
    """Compile C files into `output`, which is replaced only once the compiler has succeeded."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".build-") as scratch:
        result = Path(scratch) / output.name
        # Relative names, so that no path of this machine can reach the output.
        names = [os.path.relpath(file, SOURCE) for file in files]
        run_zig(
            ["cc", "-target", target, *WARNINGS, *flags, "-o", str(result), *names],
            directory=SOURCE,
            output=output.name,
        )
        result.replace(output)


def build(arch: str, directory: Path) -> Path:
    """Compile linger for one architecture; returns the executable, `linger-ARCH`.

    Raises BuildError.
    """
    output = directory.absolute() / f"linger-{arch}"
    target = TARGETS[arch]
    with tempfile.TemporaryDirectory(prefix="podsettle-linger-") as scratch:
        own = Path(scratch) / "linger.o"
        compile_c(sources(), own, target=target, flags=(*FLAGS, "-c"))
        libc = compile_libc(Path(scratch), target=target, flags=CODE)
        try:
            compile_c([own, *libc], output, target=target, flags=(*CODE, *LINK))
        except BuildError as error:
            if "undefined symbol" not in str(error):
                raise
            raise BuildError(f"{error}\n{UNDEFINED}") from error
    return output


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
