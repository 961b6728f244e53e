"""Load on a disk: programs that write a file and wait until the disk has it, again and again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WRITERS = 3
# As one `dd bs=8M count=1 conv=fsync`: large enough that the disk, not the program, is the limit.
WRITE_MEBIBYTES = 8

_LOOP = (
    f'while :; do dd if=/dev/zero of="$0" bs={WRITE_MEBIBYTES}M count=1 conv=fsync status=none; '
    "done"
)


@contextmanager
def fsync_load(directory: Path) -> Iterator[None]:
    """Write files of this directory's filesystem with fsync while the block runs."""
    directory.mkdir(parents=True, exist_ok=True)
    files = [directory / f"written-{number}" for number in range(WRITERS)]
    # A session of its own each, so that `dd` ends together with its loop.
    writers = [
        subprocess.Popen(["sh", "-c", _LOOP, str(file)], start_new_session=True) for file in files
    ]
    try:
        yield
    finally:
        for writer in writers:
            os.killpg(writer.pid, signal.SIGKILL)
            writer.wait()
        for file in files:
            file.unlink(missing_ok=True)
