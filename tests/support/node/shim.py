"""What containerd's shims do for a container: its process and its root filesystem."""

from __future__ import annotations

from pathlib import Path

from tests.support.node.node_paths import USUAL, NodePaths

_TASKS = "io.containerd.runtime.v2.task/k8s.io"


def first_process(container_id: str, paths: NodePaths = USUAL) -> int:
    """Return the process of a container that runs."""
    return int((_task(container_id, paths) / "init.pid").read_text())


def shim_process(container_id: str, paths: NodePaths = USUAL) -> int:
    """Return the process of the shim, which is the parent of the container's first process."""
    status = Path(f"/proc/{first_process(container_id, paths)}/status").read_text()
    (parent,) = (line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
    return int(parent)


def root_filesystem(container_id: str, paths: NodePaths = USUAL) -> Path:
    """Return the mount point of a container's root filesystem."""
    return _task(container_id, paths) / "rootfs"


def is_volatile(container_id: str, paths: NodePaths = USUAL) -> bool:
    """Whether the kernel skips the sync at the umount of a container's root filesystem."""
    # Newer kernels show the option as `fsync=volatile`.
    options = _overlay_options(root_filesystem(container_id, paths))
    return bool({"volatile", "fsync=volatile"} & options)


def _overlay_options(mount_point: Path) -> set[str]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        kind, mounted, _, options, *_ = line.split(" ")
        if mounted == str(mount_point):
            assert kind == "overlay", line
            return set(options.split(","))
    raise AssertionError(f"{mount_point} is not mounted")


def _task(container_id: str, paths: NodePaths) -> Path:
    return paths.state / _TASKS / container_id.removeprefix("containerd://")
