"""The disk of the machine with CRI-O, and a kernel: `python -m tests.support.vm.image`.

All of it comes from Debian packages, except CRI-O and a client of its API, which are built from
source. The disk also has an image of BusyBox in CRI-O's storage, and volumes full of files.

The result is kept in `${XDG_CACHE_HOME:-~/.cache}/podsettle/vm`. Its name is a hash of what goes
into it, except the releases of the packages.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.node.image_files import IMAGES
from tests.support.node.linux import Namespace, unshare
from tests.support.vm.kernel import GUEST, built_kernel, made_once, mmdebstrap, require_programs
from tools.build import BuildError, tool
from tools.buildah import Buildah, BuildahError
from tools.cache import cache_directory
from tools.crio import AFFECTED, FIXED, NEW_SPELLING, build_crio
from tools.source_build import run_step

BUSYBOX_IMAGE = "localhost/busybox:latest"
"""In CRI-O's storage."""
CRIO = Path("/opt/crio")
"""A directory of the disk with one for each release in `RELEASES`."""
RELEASES = (AFFECTED, FIXED, NEW_SPELLING)
VOLUMES = Path("/volumes")
"""A directory of the disk with the volumes of `VOLUME_FILES`."""
SIZES = (1_000, 20_000, 100_000)
VOLUME_FILES: Mapping[str, int] = {
    "small": SIZES[0],
    **{f"plain-{files}": files for files in SIZES},
    **{f"settled-{files}": files for files in SIZES},
}
"""The number of files of each volume. Their files have no label."""
FILES_PER_DIRECTORY = 1000

# Each program that makes the disk, with its Debian package.
_PROGRAMS: Mapping[str, str] = {"buildah": "buildah", "mke2fs": "e2fsprogs"}
_PACKAGES = (
    "conmon",
    "containernetworking-plugins",
    "iproute2",
    "policycoreutils",
    "runc",
    "selinux-policy-default",
)
# Sparse. The spare inodes are for the packages, and for what CRI-O writes.
_DISK_SIZE, _SPARE_INODES = "4G", 100_000


def _built(announce: Callable[[str], None]) -> Path:
    """Return a directory with `kernel`, `initramfs` and `disk`, made if it is not in the cache."""
    require_programs(_PROGRAMS)
    kernel = built_kernel(announce)
    crio = {revision: build_crio(revision) for revision in RELEASES}
    client = tool("cri")
    parts = [kernel.name, client.parent.name, *(build.directory.name for build in crio.values())]
    sources = [path.read_bytes() for path in (Path(__file__), GUEST / "container.cil")]
    key = hashlib.sha256(repr((parts, sources)).encode()).hexdigest()[:16]
    home = cache_directory() / "vm" / key
    with made_once(home) as scratch:
        if scratch is None:
            return home
        announce("building the virtual machine: some minutes, once on this machine")
        root = scratch / "root"
        _install(root, scratch)
        for revision, build in crio.items():
            shutil.copytree(build.directory, root / CRIO.relative_to("/") / revision)
        shutil.copy2(client, root / "usr/local/bin/cri")
        _write_storage(root / "var/lib/containers/storage", scratch)
        for name, files in VOLUME_FILES.items():
            _fill(root / VOLUMES.relative_to("/") / name, files)
        _write_disk(scratch / "result/disk", root, scratch)
        for name in ("kernel", "initramfs"):
            os.link(kernel / name, scratch / "result" / name)
    announce("built the virtual machine")
    return home


def _install(root: Path, scratch: Path) -> None:
    """Install the packages, and the types of containers into the policy."""
    mmdebstrap("minbase", root, *_PACKAGES)
    shutil.copy2(GUEST / "container.cil", root / "tmp")
    run_step(
        ["chroot", str(root), "semodule", "--noreload", "--install=/tmp/container.cil"], scratch
    )


def _write_storage(storage: Path, scratch: Path) -> None:
    files = scratch / "busybox"
    files.mkdir()
    image = IMAGES["busybox"]
    image.fill(files)
    buildah = Buildah(storage, driver="overlay")
    buildah.image_of_files(BUSYBOX_IMAGE, files, *image.configuration)
    # What only this buildah's process needs.
    shutil.rmtree(storage / "run")


def _fill(volume: Path, files: int) -> None:
    volume.mkdir(parents=True)
    for number in range(files):
        directory = volume / str(number // FILES_PER_DIRECTORY)
        if number % FILES_PER_DIRECTORY == 0:
            directory.mkdir()
        (directory / str(number)).touch()


def _write_disk(disk: Path, root: Path, scratch: Path) -> None:
    inodes = str(sum(VOLUME_FILES.values()) + _SPARE_INODES)
    command = ["mke2fs", "-q", "-t", "ext4", "-N", inodes, "-d", str(root), str(disk), _DISK_SIZE]
    run_step(command, scratch)


def main() -> int:
    """Make the machine if it is not in the cache, and print its directory."""

    def announce(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if os.geteuid() != 0:
        announce("vm: the file system of a machine needs root; run it with sudo")
        return 1
    # No mount outlives this process, also if it is killed.
    unshare(Namespace.MOUNT)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    try:
        print(_built(announce))
    except (BuildError, BuildahError) as error:
        announce(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
