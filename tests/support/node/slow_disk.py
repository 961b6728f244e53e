"""A disk of a node that writes slowly: ext4 on a loop device with a limit.

An overlayfs umount writes the whole filesystem back on which its upper directory is. So the umount
of a root filesystem on this disk takes as long as the disk needs for what was written before it.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.node.inside import require_inside
from tests.support.node.write_limit import LimitError, limited_writes

LOOP_CONTROL = Path("/dev/loop-control")
MEBIBYTE = 2**20
WRITE_MEBIBYTES_PER_SECOND = 4
"""With 64 MiB to write back, an umount takes 16 s: longer than containerd's limit of 10 s."""
# Sparse. It takes podsettle's image and what all pods of a measurement write.
_SIZE_BYTES = 4096 * MEBIBYTE
_PROBE_MEBIBYTES = 4


class SlowDisk:
    """A mounted filesystem whose writes can be limited."""

    def __init__(self, mount_point: Path) -> None:
        self._mount_point = mount_point
        self._device = _devices(mount_point)[-1]

    @property
    def is_mounted(self) -> bool:
        """Whether the filesystem is still mounted."""
        return self._device in _devices(self._mount_point)

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Limit writes until the block ends. Raise LimitError if the limit has no effect."""
        self.write_back()
        with limited_writes(self._device, WRITE_MEBIBYTES_PER_SECOND * MEBIBYTE):
            self._check()
            yield

    def write_back(self) -> None:
        """Write everything to the disk that is buffered."""
        subprocess.run(["sync", "--file-system", str(self._mount_point)], check=True)

    def _check(self) -> None:
        probe = self._mount_point / "probe"
        probe.write_bytes(bytes(_PROBE_MEBIBYTES * MEBIBYTE))
        begin = time.monotonic()
        self.write_back()
        probe.unlink()
        expected = _PROBE_MEBIBYTES / WRITE_MEBIBYTES_PER_SECOND
        if (took := time.monotonic() - begin) < expected / 2:
            raise LimitError(
                f"node: {self._device}: {_PROBE_MEBIBYTES} MiB were written in {took:.2f} s: the "
                f"limit of {WRITE_MEBIBYTES_PER_SECOND} MiB/s has no effect. The cgroup hierarchy "
                "has to be the machine's own, not that of a container"
            )


@contextmanager
def slow_disk(mount_point: Path) -> Iterator[SlowDisk]:
    """Mount an empty filesystem, and remove it when the block ends.

    The kernel frees the loop device at the umount, also when the namespaces end before the block.
    """
    require_inside()
    mount_point.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix="disk-") as file:
        file.truncate(_SIZE_BYTES)
        # A small journal and no lazy initialization: the kernel would write both in the background.
        subprocess.run(["mkfs.ext4", "-q", "-F", "-J", "size=16", file.name], check=True)
        options = "loop,noinit_itable"
        subprocess.run(["mount", "-o", options, file.name, str(mount_point)], check=True)
        disk = SlowDisk(mount_point)
        try:
            yield disk
        finally:
            # The removal of a node's leftovers may have unmounted it.
            if disk.is_mounted:
                subprocess.run(["umount", str(mount_point)], check=True)


def _devices(mount_point: Path) -> list[str]:
    """Return the numbers of the devices that are mounted here, such as `7:0`. The last counts."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[2] for line in lines if line.split()[4] == str(mount_point)]
