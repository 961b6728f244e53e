"""The limit of the speed at which a block device is written.

The file that sets it is outside of the node's cgroup namespace:

- In version 1, the file of the root cgroup counts, because the kernel's threads that write back
  what others have buffered are there. Version 1 has no limit for a cgroup and all below it.
- In version 2, writes count for the cgroup that buffered them, and a limit of the node's own cgroup
  also applies to those below. The cgroup's own files are closed to processes in its namespace on a
  machine that mounts the hierarchy with `nsdelegate`.

So `open_file` opens it outside, and the command inherits it. The devices with a limit are listed in
the work directory, so that the limits end with the node even if the command is killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.node import cgroups
from tests.support.node.inside import require_inside

_DESCRIPTOR = "PODSETTLE_NODE_WRITE_LIMIT"
_LIST = "PODSETTLE_NODE_LIMITED_DEVICES"
_FILE_1 = "blkio.throttle.write_bps_device"
_FILE_2 = "io.max"


class LimitError(RuntimeError):
    """The machine cannot limit writes; the message says what it lacks."""


def open_file(node_cgroups: Iterable[Path], devices: Path) -> dict[str, str]:
    """Open the file that sets limits. Return the environment for the command that inherits it.

    The environment is empty if the machine has no such file.
    """
    path = _file(node_cgroups)
    if path is None:
        return {}
    descriptor = os.open(path, os.O_WRONLY)
    os.set_inheritable(descriptor, True)
    return {_DESCRIPTOR: str(descriptor), _LIST: str(devices)}


@contextmanager
def limited_writes(device: str, bytes_per_second: int) -> Iterator[None]:
    """Limit writes to a device, such as `7:0`, until the block ends."""
    require_inside()
    if _DESCRIPTOR not in os.environ:
        raise LimitError("node: cgroups: no controller blkio (version 1) or io (version 2)")
    descriptor = int(os.environ[_DESCRIPTOR])
    with Path(os.environ[_LIST]).open("a") as devices:
        devices.write(f"{device}\n")
    os.write(descriptor, _line(device, bytes_per_second))
    try:
        yield
    finally:
        os.write(descriptor, _line(device, None))


def remove_limits(devices: Path) -> None:
    """Remove the limits of the listed devices, from outside, after the command has ended."""
    path = _file(())
    # In version 2, a limit ends with its cgroup.
    if devices.exists() and path is not None:
        for device in {*devices.read_text().split()}:
            path.write_bytes(_line(device, None))


def _file(node_cgroups: Iterable[Path]) -> Path | None:
    for hierarchy in cgroups.hierarchies():
        if "blkio" in hierarchy.options.split(","):
            return hierarchy.mount_point / _FILE_1
        if hierarchy.is_version_2:
            found = [directory / _FILE_2 for directory in node_cgroups]
            return found[0] if found and found[0].exists() else None
    return None


def _line(device: str, bytes_per_second: int | None) -> bytes:
    if cgroups.hierarchies()[0].is_version_2:
        return f"{device} wbps={bytes_per_second or 'max'}\n".encode()
    return f"{device} {bytes_per_second or 0}\n".encode()
