"""What the helper is linked with, by the linker's own words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from release.source import Release, ReleaseError
from webhook.linger.build import (
    CODE_FLAGS,
    COMPILE_FLAGS,
    LINK_FLAGS,
    SOURCE,
    TARGETS,
    build,
    compile_c,
)
from webhook.linger.musl_build import compile_libc
from webhook.linger.zig import zig_library

# The component in each file of the linker. Zig implements a part of the C library.
_COMPONENTS: Mapping[str, str] = {
    "linger.o": "podsettle",
    "musl.o": "musl",
    "libc.a": "zig",
    "libcompiler_rt.a": "zig",
}


def components(release: Release) -> list[dict[str, object]]:
    """Return CycloneDX' components of the helper."""
    header = (zig_library() / "libc/musl/src/internal/version.h").read_text("utf-8")
    versions = {
        "podsettle": (release.version, "Apache-2.0", "pypi/podsettle"),
        "musl": (header.split('"')[1], "MIT", "generic/musl"),
        "zig": (version("ziglang"), "MIT", "pypi/ziglang"),
    }
    return [
        {
            "type": "library",
            "bom-ref": name,
            "name": name,
            "version": number,
            "licenses": [{"license": {"id": licence}}],
            "purl": f"pkg:{address}@{number}",
        }
        for name, (number, licence, address) in versions.items()
    ]


def linked_components(scratch: Path) -> set[str]:
    """Link the helper once more, and return the components of the files that the linker takes.

    Raises ReleaseError for a file of no known component, and if the result is not the helper.
    """
    target = TARGETS["amd64"]
    objects: Sequence[Path] = [scratch / "linger.o"]
    sources = sorted(SOURCE.glob("*.c"))
    compile_c(sources, objects[0], target=target, flags=(*COMPILE_FLAGS, "-c"))
    objects = [*objects, *compile_libc(scratch, target=target, flags=CODE_FLAGS)]
    linked = scratch / "linger"
    files = [str(path) for path in (linked, *objects)]
    command = ["cc", "-target", target, *CODE_FLAGS, *LINK_FLAGS, "-o", *files]
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *command],
        env={**os.environ, "ZIG_VERBOSE_LINK": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    if linked.read_bytes() != build("amd64", scratch / "built").read_bytes():
        raise ReleaseError("release: the linker's list is not that of the helper")
    names = set(re.findall(r"\S*/(\S+\.[ao])\b", done.stderr))
    if unknown := names - _COMPONENTS.keys():
        raise ReleaseError(f"release: the helper contains {', '.join(sorted(unknown))}")
    return {_COMPONENTS[name] for name in names}
