"""The kernel of the machines, its modules and an initramfs, from a Debian package.

They are kept in `${XDG_CACHE_HOME:-~/.cache}/podsettle/vm`, in a directory whose name is a hash of
what goes into it, except the release of the package.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.base_image import BUSYBOX
from tools.build import BuildError
from tools.cache import cache_directory, exclusive
from tools.source_build import run_step

# Each program that makes or runs a machine, with its Debian package.
_PROGRAMS: Mapping[str, str] = {
    BUSYBOX: "busybox-static",
    "mmdebstrap": "mmdebstrap",
    "qemu-system-x86_64": "qemu-system-x86",
}
_SUITE = "bookworm"
_PACKAGE = "linux-image-amd64"
# What mounts the root of a machine, and pods' networks. Each module is after those that it needs.
_MODULES = (
    *("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"),
    *("virtio_blk", "crc16", "crc32c_generic", "mbcache", "jbd2", "ext4"),
    *("netfs", "fscache", "9pnet", "9pnet_virtio", "9p", "overlay", "veth"),
)
# No mount and no process outlives the command, also if it is killed.
_ALONE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
GUEST = Path(__file__).with_name("guest")
"""What runs in the machines."""


def require_programs(more: Mapping[str, str] | None = None) -> None:
    """Raise BuildError if a program is missing that makes or runs a machine."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    wanted = {**_PROGRAMS, **(more or {})}
    missing = [name for name in wanted if not shutil.which(name, path=path)]
    if missing:
        packages = " ".join(sorted({wanted[name] for name in missing}))
        raise BuildError(f"vm: not installed: on Debian: apt install {packages}")


def built_kernel(announce: Callable[[str], None]) -> Path:
    """Return a directory with `kernel`, `initramfs` and `modules`, made if the cache lacks it."""
    require_programs()
    sources = [path.read_bytes() for path in (Path(__file__), GUEST / "init", GUEST / "boot.sh")]
    key = hashlib.sha256(repr(sources).encode()).hexdigest()[:16]
    home = cache_directory() / "vm" / f"kernel-{key}"
    with made_once(home) as scratch:
        if scratch is not None:
            announce("unpacking a kernel for virtual machines ...")
            _write(scratch / "result", scratch)
    return home


@contextmanager
def made_once(home: Path) -> Iterator[Path | None]:
    """Yield a directory whose `result` becomes `home`, or None if that exists."""
    with exclusive(home):
        if home.is_dir():
            yield None
            return
        scratch = home.with_name(f"{home.name}.unfinished")
        # A killed build left it.
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "result").mkdir(parents=True)
        try:
            yield scratch
            (scratch / "result").rename(home)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def mmdebstrap(variant: str, target: Path, *packages: str) -> None:
    """Unpack or install Debian packages into a directory."""
    include = f"--include={','.join(packages)}"
    command = ["mmdebstrap", f"--variant={variant}", include, _SUITE, str(target)]
    run_step([*_ALONE, *command], target.parent)


def _write(result: Path, scratch: Path) -> None:
    packages, initramfs = scratch / "packages", scratch / "initramfs"
    mmdebstrap("extract", packages, _PACKAGE)
    (image,) = packages.glob("boot/vmlinuz-*")
    shutil.copy2(image, result / "kernel")
    (modules,) = packages.glob("lib/modules/*")
    run_step([BUSYBOX, "depmod", "-b", str(packages), modules.name], scratch)
    (initramfs / "bin").mkdir(parents=True)
    (initramfs / "modules").mkdir()
    shutil.copy2(BUSYBOX, initramfs / "bin/busybox")
    for name in ("init", "boot.sh"):
        shutil.copy2(GUEST / name, initramfs)
    for number, name in enumerate(_MODULES):
        (module,) = modules.glob(f"kernel/**/{name}.ko")
        shutil.copy2(module, initramfs / "modules" / f"{number:02}-{name}.ko")
    modules.parent.rename(result / "modules")
    pack = f"find . | {BUSYBOX} cpio -o -H newc > {result / 'initramfs'}"
    run_step(["sh", "-ec", pack], initramfs)
