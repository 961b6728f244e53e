"""The mounts of a node: its own directories at the usual paths.

Runtimes, the kubelet and `podsettle node-config` use their real default paths. Nothing is written
to the machine's own directories.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

# Their content is visible, and changes go to the work directory.
COPIED_ON_WRITE = ("/etc", "/usr/libexec", "/var/lib")
# Empty at first.
OWN = (
    "/run",
    "/var/log",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/crio",
    "/var/lib/kubelet",
    "/var/lib/second",
    "/etc/cni",
    "/etc/containerd",
    "/etc/containers",
    "/etc/crio",
)
# The kubelet sets these, which are the machine's. Inside, they are files without effect.
_SYSCTLS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


def mount_all(work: Path) -> None:
    """Mount everything except cgroups, in the mount namespace of this process."""
    # On a machine with systemd all mounts are shared, and would appear outside.
    _mount("--make-rprivate", "/")
    _mount("-t", "proc", "proc", "/proc")
    for target in COPIED_ON_WRITE:
        upper, scratch = _directory(work, "upper", target), _directory(work, "scratch", target)
        options = f"lowerdir={target},upperdir={upper},workdir={scratch}"
        _mount("-t", "overlay", "-o", options, "overlay", target)
    for target in OWN:
        Path(target).mkdir(parents=True, exist_ok=True)
        _mount("--bind", _directory(work, "own", target), target)
    for name in _SYSCTLS:
        actual = Path("/proc/sys") / name
        copy = _directory(work, "sysctls", str(actual.parent)) / actual.name
        copy.write_text(actual.read_text())
        _mount("--bind", copy, actual)
    # The kubelet needs it for volumes with mount propagation.
    _mount("--make-rshared", "/")


def _directory(work: Path, kind: str, target: str) -> Path:
    made = work / kind / target.lstrip("/")
    made.mkdir(parents=True, exist_ok=True)
    return made


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)
