"""CRI-O, built from its source: `python -m tools.crio`.

The newest release comes from the Go module proxy (`module_build`), and its program `pinns`, which
is written in C, from the same module. Older releases are built from a clone of the repository,
which vendors their dependencies.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tools.build import CRIO, BuildError, module_directory, search, tool
from tools.cache import exclusive
from tools.source_build import SourceBuild, build_go, run_step

# The last release with the lost exit code (cri-o issue 9840), and the first without it.
AFFECTED, FIXED = "v1.33.12", "v1.33.13"
# A release that reads the new spelling of the annotation TrySkipVolumeSELinuxLabel.
NEW_SPELLING = "v1.35.2"
_COMMITS = {
    AFFECTED: "f61007b555baf09c789a73d3f4d95cafc1138fec",
    FIXED: "88fba2dcb1093621c70184699881bfb36f906c40",
    NEW_SPELLING: "fb90456847161db2fd085f5991852305b6e9fdae",
}

_MODULE = "github.com/cri-o/cri-o"
# CRI-O's Makefile chooses tags by the libraries of the machine. These give the same CRI-O on each
# one: it checks signatures of images in Go instead of by gpgme, and has no driver for Btrfs.
_TAGS = (
    "apparmor",
    "btrfs_noversion",
    "containers_image_openpgp",
    "containers_image_ostree_stub",
    "exclude_graphdriver_btrfs",
    "seccomp",
    "selinux",
)
_FLAGS = ("-ldflags=-s -w", f"-tags={','.join(_TAGS)}")

# The programs of the build, each with its Debian package, and the header of libseccomp-dev.
PACKAGES = {
    "cc": "gcc",
    "git": "git",
    "make": "make",
    "pkg-config": "pkg-config",
    "strip": "binutils",
}
HEADER = Path("/usr/include/seccomp.h")


@dataclass(frozen=True)
class CrioBuild:
    """A build of CRI-O."""

    version: str
    """The release, without a `v`."""
    directory: Path

    @property
    def crio(self) -> Path:
        """The daemon."""
        return self.directory / "crio"

    @property
    def pinns(self) -> Path:
        """The program that keeps a pod's namespaces."""
        return self.directory / "pinns"


def find_crio(revision: str) -> CrioBuild | None:
    """Return the build of a revision, or None if `build_crio` did not build it yet."""
    home = BUILD.find(revision)
    return _load(home) if home is not None else None


def build_crio(revision: str) -> CrioBuild:
    """Return the build of a revision, made where it is not in the cache."""
    return _load(BUILD.build(revision))


def module_build() -> CrioBuild:
    """Return CRI-O of the Go module proxy, and build it first if it is missing. Needs a C compiler.

    Raises BuildError.
    """
    program = tool("crio")
    pinns = program.with_name("pinns")
    with exclusive(pinns):
        if not pinns.exists():
            sources = sorted((module_directory(CRIO, _MODULE) / "pinns" / "src").glob("*.c"))
            unfinished = pinns.with_suffix(".unfinished")
            flags = ("-std=c99", "-Os", "-static", "-s", "-o", str(unfinished))
            run_step(["cc", *flags, *map(str, sources)], program.parent)
            unfinished.rename(pinns)
    return CrioBuild(search(CRIO.module / "go.mod", rf"^\t{_MODULE} v(\S+)"), program.parent)


def _load(home: Path) -> CrioBuild:
    return CrioBuild((home / "version").read_text(), home)


def _make(tree: Path, output: Path) -> None:
    try:
        run_step(["pkg-config", "--exists", "libseccomp"], tree)
    except BuildError:
        raise BuildError("cri-o: its build needs: apt install libseccomp-dev") from None
    build_go(tree, "./cmd/crio", output / "crio", *_FLAGS, environment={"CGO_ENABLED": "1"})
    run_step(["make", "-C", "pinns"], tree)
    shutil.copy2(tree / "bin" / "pinns", output / "pinns")
    version = search(tree / "internal" / "version" / "version.go", r'^const Version = "(.+)"$')
    (output / "version").write_text(version)


BUILD = SourceBuild(
    name="cri-o",
    address="https://github.com/cri-o/cri-o",
    variable="CRIO_SOURCE",
    commits=_COMMITS,
    recipe=_FLAGS,
    packages=PACKAGES,
    make=_make,
)

if __name__ == "__main__":
    BUILD.main(AFFECTED, FIXED)
