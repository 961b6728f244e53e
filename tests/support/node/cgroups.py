"""The node's cgroup in each hierarchy, version 1 or 2.

In its cgroup namespace, the node sees its cgroup as the root of the hierarchy.

In version 2, a controller has to be enabled in the machine's root cgroup. Those that a node enables
are listed in a file, and the last node that ends disables them again.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = frozenset({"cpu", "cpuset", "devices", "memory", "pids"})
"""What the kubelet and the runtimes need."""
_OPTIONAL = frozenset({"io"})
"""What limits the speed of a disk in version 2."""
# Of the machine, and gone after a reboot, as the enabled controllers are.
_ENABLED = Path("/run/podsettle-node-controllers")

# The kernel removes a process from its cgroup a moment after the process was reaped.
_REMOVAL_SECONDS = 120.0
_POLL_SECONDS = 0.05


class CgroupError(Exception):
    """The machine does not let a node have its controllers; the message says what to do."""


@dataclass(frozen=True)
class Hierarchy:
    """A mounted cgroup hierarchy."""

    mount_point: Path
    options: str
    """Of the mount, which name the controllers. Empty in version 2."""

    @property
    def is_version_2(self) -> bool:
        """Whether the hierarchy holds all controllers."""
        return not self.options


def hierarchies() -> list[Hierarchy]:
    """Return those with controllers: the one of version 2, or all of version 1."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, source = line.partition(" - ")
        mount_point, (kind, _, options) = Path(mount.split()[4]), source.split()
        if kind == "cgroup2" and mount_point == ROOT:
            return [Hierarchy(mount_point, "")]
        if kind == "cgroup" and mount_point.parent == ROOT:
            named = [option for option in options.split(",") if option.startswith("name=")]
            given = [option for option in options.split(",") if option in _controllers()]
            found.append(Hierarchy(mount_point, ",".join(given or ["none", *named])))
    return found


def available_controllers() -> set[str]:
    """Return the names of the controllers in the mounted hierarchies."""
    found: set[str] = set()
    for hierarchy in hierarchies():
        if hierarchy.is_version_2:
            # Version 2 controls devices by eBPF programs, without a controller.
            found |= {*(ROOT / "cgroup.controllers").read_text().split(), "devices"}
        else:
            found |= {*hierarchy.options.split(",")}
    return found


def paths(name: str) -> list[Path]:
    """Return the directories of a cgroup: below this process's own in version 1.

    In version 2, a cgroup with processes has no children with controllers, so it is below the root.
    """
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own[controllers] = path.lstrip("/")
    found = []
    for hierarchy in hierarchies():
        key = hierarchy.options.removeprefix("none,")
        parent = hierarchy.mount_point / own.get(key, "")
        if hierarchy.is_version_2 or not parent.is_dir():
            parent = hierarchy.mount_point
        found.append(parent / name)
    return found


def create(directories: Iterable[Path]) -> None:
    """Make the cgroups."""
    for directory in directories:
        if directory.parent == ROOT:
            with _enabled_by_nodes() as names:
                names |= enable_controllers(ROOT)
        directory.mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            # Version 1 starts with an empty set, which no process can join.
            if (directory / name).exists() and directory.parent != ROOT:
                (directory / name).write_text((directory.parent / name).read_text())


def join(directories: Iterable[Path]) -> None:
    """Move this process into the cgroups."""
    for directory in directories:
        (directory / "cgroup.procs").write_text(str(os.getpid()))


def mount() -> None:
    """Mount the hierarchies in the cgroup and mount namespaces of this process."""
    found = hierarchies()
    # Mounts of the machine that stay visible in mountinfo mislead runtimes.
    _run("umount", "--recursive", "--lazy", "/sys")
    _run("mount", "-t", "sysfs", "sysfs", "/sys")
    if found[0].is_version_2:
        _run("mount", "-t", "cgroup2", "cgroup2", ROOT)
        init = ROOT / "init"
        init.mkdir()
        join([init])
        enable_controllers(ROOT)
        return
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", ROOT)
    for hierarchy in found:
        hierarchy.mount_point.mkdir()
        _run("mount", "-t", "cgroup", "-o", hierarchy.options, "cgroup", hierarchy.mount_point)


def remove(directories: Iterable[Path]) -> None:
    """Remove cgroups without processes, and all below them."""
    for directory in directories:
        for path, _, _ in os.walk(directory, topdown=False):
            _remove(Path(path))
        if directory.parent == ROOT:
            with _enabled_by_nodes() as names:
                names -= disable_controllers(ROOT, names)


def _remove(directory: Path) -> None:
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while directory.exists():
        try:
            directory.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


def enable_controllers(directory: Path) -> set[str]:
    """Enable what a node needs for the children of a cgroup. Return what was not enabled before."""
    control = directory / "cgroup.subtree_control"
    available = {*(directory / "cgroup.controllers").read_text().split()}
    missing = (available & (CONTROLLERS | _OPTIONAL)) - {*control.read_text().split()}
    if missing:
        try:
            control.write_text(" ".join(f"+{name}" for name in sorted(missing)))
        except OSError as error:
            raise CgroupError(
                f"node: {control}: cannot enable {', '.join(sorted(missing))}: {error.strerror}: "
                "run it on the machine itself, not in a container, and without real-time processes"
            ) from None
    return missing


def disable_controllers(directory: Path, names: Iterable[str]) -> set[str]:
    """Disable controllers for the children of a cgroup. Return those that no child uses."""
    disabled = set()
    for name in sorted(names):
        try:
            (directory / "cgroup.subtree_control").write_text(f"-{name}")
        except OSError:
            # Another cgroup below has enabled it.
            continue
        disabled.add(name)
    return disabled


@contextmanager
def _enabled_by_nodes() -> Iterator[set[str]]:
    """Yield the controllers that nodes have enabled, to be changed. Other nodes wait."""
    with _ENABLED.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        names = {*file.read().split()}
        yield names
        file.truncate(0)
        file.write(" ".join(sorted(names)))


def _controllers() -> set[str]:
    lines = Path("/proc/cgroups").read_text().splitlines()
    return {line.split()[0] for line in lines if not line.startswith("#")}


def _run(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True)
