"""What a machine needs for a real node: `python -m tests.support.node.requirements [crio|umount]`.

With `crio`, it also lists what a node with CRI-O and the build of CRI-O need, and with `umount`
what the measurement of umounts needs.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.node import cgroups
from tests.support.node.images import missing_packages
from tests.support.node.network import CNI_PLUGINS
from tests.support.node.slow_disk import LOOP_CONTROL
from tests.support.node.work_directory import parent as work_directories
from tools import crio
from tools.kube_versions import KUBE_VERSION, NODE_LINES

# Programs that a node starts, each with its Debian package.
_PROGRAMS: Mapping[str, str] = {
    "cc": "gcc",
    "conmon": "conmon",
    "crun": "crun",
    "docker-registry": "docker-registry",
    "ip": "iproute2",
    "iptables": "iptables",
    "mount": "mount",
    "runc": "runc",
    str(CNI_PLUGINS / "bridge"): "containernetworking-plugins",
}
_MORE_PROGRAMS: Mapping[str, Mapping[str, str]] = {
    "crio": crio.PACKAGES,
    "umount": {"mkfs.ext4": "e2fsprogs"},
}
_MOUNT_OPTION_SEPARATORS = frozenset(",:\\")
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def missing_requirements(*purposes: str) -> list[str]:
    """Return what the machine lacks for a node, and for `crio` or `umount` if they are given."""
    if sys.platform != "linux":
        return ["node: this machine: a node needs Linux"]
    found = []
    if (line := os.environ.get(KUBE_VERSION) or NODE_LINES[0]) not in NODE_LINES:
        found.append(
            f"node: {KUBE_VERSION}={line}: the kubelet is of {' or '.join(NODE_LINES)}: choose "
            "one, or run it without the variable"
        )
    if os.geteuid() != 0:
        found.append("node: namespaces and mounts: they need root; run it with sudo")
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"
    wanted = dict(_PROGRAMS)
    for purpose in purposes:
        wanted |= _MORE_PROGRAMS[purpose]
    packages = {
        package for name, package in wanted.items() if shutil.which(name, path=path) is None
    }
    if "crio" in purposes and not crio.HEADER.exists():
        packages.add("libseccomp-dev")
    if packages:
        found.append(f"node: not installed: on Debian: apt install {' '.join(sorted(packages))}")
    if "overlay" not in _file_systems():
        found.append("node: overlayfs: the kernel does not have it; try modprobe overlay")
    if not (directory := work_directories()).is_dir():
        found.append(f"node: TMPDIR: {directory} is not a directory: set another one")
    elif set(str(directory)) & _MOUNT_OPTION_SEPARATORS:
        found.append(
            f"node: TMPDIR: a mount option cannot hold {directory}: "
            "set a directory without comma, colon and backslash"
        )
    if "umount" in purposes:
        if not LOOP_CONTROL.exists():
            found.append("node: loop devices: the kernel does not have them; try modprobe loop")
        if not {"blkio", "io"} & cgroups.available_controllers():
            found.append("node: cgroups: neither blkio nor io is mounted, which limit writes")
    if lacking := cgroups.CONTROLLERS - cgroups.available_controllers():
        listed = ", ".join(sorted(lacking))
        found.append(
            f"node: cgroups: these controllers are not mounted below {cgroups.ROOT}: {listed}"
        )
    return found


def _file_systems() -> set[str]:
    lines = Path("/proc/filesystems").read_text().splitlines()
    return {line.split()[-1] for line in lines}


def main() -> int:
    """Print what a node and its images lack. Return 1 if anything is missing."""
    missing = missing_requirements(*sys.argv[1:])
    if packages := missing_packages():
        missing.append(f"images: not installed: on Debian: apt install {' '.join(packages)}")
    print("\n".join(missing), file=sys.stderr, end="\n" if missing else "")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
