"""What a test needs beside Python packages and the programs that `make test` provides.

A test says it with a marker: `@pytest.mark.needs("chromium", "root")`. `make test` leaves these
tests out, so that it skips nothing on a machine with Python, make and git alone. `make test-all`
runs them, and skips one with a reason if the machine lacks what it needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

PACKAGES: Mapping[str, str] = {
    "buildah": "buildah",
    "busybox": "busybox-static",
    "cc": "gcc",
    "chromedriver": "chromium-driver",
    "chromium": "chromium",
    "clang": "clang",
    "curl": "curl",
    "dash": "dash",
    "docker-registry": "docker-registry",
    "gcc": "gcc",
    "haproxy": "haproxy",
    "ip": "iproute2",
    "iptables": "iptables",
    "jq": "jq",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "qemu-aarch64-static": "qemu-user-static",
    "qemu-ppc64le-static": "qemu-user-static",
    "qemu-s390x-static": "qemu-user-static",
    "runc": "runc",
    "unshare": "util-linux",
    "wrk": "wrk",
}
"""The programs that tests start, each with its Debian package."""
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
_CGROUPS = Path("/sys/fs/cgroup")

FIXTURES: Mapping[str, tuple[str, ...]] = {
    "chromium": ("chromium", "chromedriver"),
    "machine": ("runc", "busybox", "root"),
    "registry": ("docker-registry",),
}
"""What a test needs that uses one of these fixtures."""


def reasons(names: Iterable[str]) -> list[str]:
    """Return a reason for each name that this machine lacks.

    A name is a program of PACKAGES, or `root`, `cgroups` (writable ones) or `libfaketime`.
    """
    return [reason for name in names if (reason := _reason(name))]


def path_of(program: str) -> str:
    """Return the path of a program that the test needs, also of a system program."""
    found = _find(program)
    assert found, f'{program} is missing: mark the test with needs("{program}")'
    return found


def _find(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path=_SYSTEM_PATH)


def libfaketime() -> Path | None:
    """Return the library that changes the clock of a process, or None."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


@cache
def _no_namespace() -> str | None:
    """Return why this machine makes no mount and PID namespaces, or None."""
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return str(error)
    return f"needs namespaces, as root has them: {done.stderr}" if done.returncode else None


def _reason(name: str) -> str | None:
    if name == "root":
        return None if os.geteuid() == 0 else "needs root"
    if name == "unshare":
        return _no_namespace()
    if name == "cgroups":
        writable = any(os.access(path, os.W_OK) for path in (_CGROUPS, _CGROUPS / "memory"))
        return None if writable else f"{_CGROUPS} cannot be written"
    if name == "libfaketime":
        return None if libfaketime() else "libfaketime is missing: apt install libfaketime"
    return None if _find(name) else f"{name} is missing: apt install {PACKAGES[name]}"
