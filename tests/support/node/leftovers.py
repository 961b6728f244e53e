"""Removal of what a node leaves in its namespaces, so that another node can start in them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support.node import cgroups
from tests.support.node.inside import require_inside
from tests.support.node.mounts import OWN
from tests.support.node.network import tear_down
from tests.support.node.node_paths import SECOND_CGROUP
from tests.support.waiting import await_that

_INIT = 1
# The network's configuration, this process's temporary files, and the logs of servers.
_KEPT = {"/etc/cni", "/run", "/var/log"}
_IN_KEPT = (
    *(f"/run/{name}" for name in ("containerd", "containers", "crio", "netns", "runc", "second")),
    *(f"/var/log/{name}" for name in ("containers", "crio", "pods", "second")),
)


def remove_leftovers() -> None:
    """Kill containers, and remove mounts, files, interfaces and cgroups of a stopped node.

    Raise OutsideError outside of a node's namespaces.
    """
    require_inside()
    await_that(_no_orphans, "the containers' processes end")
    for mount_point in reversed(_mount_points()):
        subprocess.run(["umount", "--lazy", mount_point], check=False, capture_output=True)
    for directory in (*(path for path in OWN if path not in _KEPT), *_IN_KEPT):
        _empty(Path(directory))
    tear_down()
    for hierarchy in cgroups.hierarchies():
        cgroups.remove(hierarchy.mount_point / name for name in ("kubepods", SECOND_CGROUP))


def _no_orphans() -> bool:
    """Kill the processes whose parent has ended: shims, monitors, and what those leave."""
    found = [process for process in _processes() if process != os.getpid()]
    orphans = [process for process in found if _parent(process) == _INIT]
    ancestors = _ancestors()
    killed = [process for process in orphans if process not in ancestors]
    for process in killed:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return not killed


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _ancestors() -> set[int]:
    found, process = {os.getpid()}, os.getpid()
    while (process := _parent(process)) > _INIT:
        found.add(process)
    return found


def _parent(process: int) -> int:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # The name, in parentheses, may contain anything.
    return int(stat.rpartition(")")[2].split()[1])


def _mount_points() -> list[str]:
    """Return the mount points below those of the node's own directories, in their order."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount_point = line.split()[4].encode().decode("unicode_escape")
        if any(mount_point.startswith(f"{own}/") for own in OWN):
            found.append(mount_point)
    return found


def _empty(directory: Path) -> None:
    if not directory.is_dir():
        return
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
