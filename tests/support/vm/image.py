"""The kernel, the initramfs and the disk of the machine: `python -m tests.support.vm.image`.

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

from tests.support.base_image import BUSYBOX
from tests.support.buildah import Buildah, BuildahError
from tests.support.kube.build import BuildError, cri_client
from tests.support.node.crio_build import AFFECTED, FIXED, NEW_SPELLING, build_crio
from tests.support.node.image_files import IMAGES
from tests.support.node.linux import Namespace, unshare
from tests.support.node.source import cache_directory, exclusive
from tests.support.node.source_build import run_step

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

# Each program that makes or runs the machine, with its Debian package.
_PROGRAMS: Mapping[str, str] = {
    BUSYBOX: "busybox-static",
    "buildah": "buildah",
    "mke2fs": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "qemu-system-x86_64": "qemu-system-x86",
}
_SUITE = "bookworm"
_KERNEL = "linux-image-amd64"
_PACKAGES = (
    "conmon",
    "containernetworking-plugins",
    "iproute2",
    "policycoreutils",
    "runc",
    "selinux-policy-default",
)
# Each module is after those that it needs.
_MODULES = (
    *("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"),
    *("virtio_blk", "crc16", "crc32c_generic", "mbcache", "jbd2", "ext4"),
    *("netfs", "fscache", "9pnet", "9pnet_virtio", "9p", "overlay", "veth"),
)
_GUEST = Path(__file__).with_name("guest")
# Sparse. The spare inodes are for the packages, and for what CRI-O writes.
_DISK_SIZE, _SPARE_INODES = "4G", 100_000


def missing_packages() -> list[str]:
    """Return the Debian packages without which the machine cannot be made."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return sorted(
        package for name, package in _PROGRAMS.items() if not shutil.which(name, path=path)
    )


def _built(announce: Callable[[str], None]) -> Path:
    """Return a directory with `kernel`, `initramfs` and `disk`, made if it is not in the cache."""
    if missing := missing_packages():
        raise BuildError(f"vm: not installed: on Debian: apt install {' '.join(missing)}")
    crio = {revision: build_crio(revision, announce=announce) for revision in RELEASES}
    client = cri_client(announce)
    parts = [*(build.directory.name for build in crio.values()), client.parent.name]
    sources = [path.read_bytes() for path in (Path(__file__), *sorted(_GUEST.iterdir()))]
    key = hashlib.sha256(repr((parts, sources)).encode()).hexdigest()[:16]
    home = cache_directory() / "vm" / key
    with exclusive(home):
        if not home.is_dir():
            scratch = home.with_name("unfinished")
            # A killed build left it.
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            try:
                announce("building the virtual machine: some minutes, once on this machine")
                _write_kernel(scratch / "result", scratch)
                root = scratch / "root"
                _install(root, scratch)
                for revision, build in crio.items():
                    shutil.copytree(build.directory, root / CRIO.relative_to("/") / revision)
                shutil.copy2(client, root / "usr/local/bin/cri")
                _write_storage(root / "var/lib/containers/storage", scratch)
                for name, files in VOLUME_FILES.items():
                    _fill(root / VOLUMES.relative_to("/") / name, files)
                _write_disk(scratch / "result/disk", root, scratch)
                (scratch / "result").rename(home)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            announce("built the virtual machine")
    return home


def _write_kernel(result: Path, scratch: Path) -> None:
    """Write the kernel, and an initramfs that mounts the disk."""
    packages, initramfs = scratch / "kernel", scratch / "initramfs"
    result.mkdir()
    _mmdebstrap("extract", packages, _KERNEL)
    (image,) = packages.glob("boot/vmlinuz-*")
    shutil.copy2(image, result / "kernel")
    (initramfs / "bin").mkdir(parents=True)
    (initramfs / "modules").mkdir()
    shutil.copy2(BUSYBOX, initramfs / "bin/busybox")
    shutil.copy2(_GUEST / "init", initramfs / "init")
    for number, name in enumerate(_MODULES):
        (module,) = packages.glob(f"lib/modules/*/kernel/**/{name}.ko")
        shutil.copy2(module, initramfs / "modules" / f"{number:02}-{name}.ko")
    pack = f"find . | {BUSYBOX} cpio -o -H newc > {result / 'initramfs'}"
    run_step(["sh", "-ec", pack], initramfs)


def _install(root: Path, scratch: Path) -> None:
    """Install the packages, and the types of containers into the policy."""
    _mmdebstrap("minbase", root, *_PACKAGES)
    shutil.copy2(_GUEST / "container.cil", root / "tmp")
    run_step(
        ["chroot", str(root), "semodule", "--noreload", "--install=/tmp/container.cil"], scratch
    )
    shutil.copy2(_GUEST / "boot.sh", root)
    (root / "share").mkdir()


def _mmdebstrap(variant: str, target: Path, *packages: str) -> None:
    include = f"--include={','.join(packages)}"
    command = ["mmdebstrap", f"--variant={variant}", include, _SUITE, str(target)]
    run_step(command, target.parent)


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
