"""The work directory of a node, which its lock protects from the next start.

Only the directory, the cgroups and the limits of writes outlive a node that was killed with
SIGKILL. The next start finds the directory, takes its lock, and removes all of them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.node import cgroups
from tests.support.node.write_limit import remove_limits

_PREFIX = "podsettle-node-"
_UNLOCKED_PREFIX = f".{_PREFIX}"
_CGROUPS = "cgroups"
_LIMITED = "limited-devices"
# Longer than a start needs to lock its directory.
_UNLOCKED_SECONDS = 60.0


def parent() -> Path:
    """Return the directory for work directories. Its file system has to take overlayfs."""
    return Path(os.environ.get("TMPDIR") or "/var/tmp")


@contextmanager
def work_directory() -> Iterator[Path]:
    """Make a directory and cgroups of its name. Remove both at the end."""
    _remove_leftovers()
    # The lock comes before the name, so that no other start takes it for a leftover.
    unlocked = Path(tempfile.mkdtemp(prefix=_UNLOCKED_PREFIX, dir=parent()))
    lock = _lock(unlocked)
    assert lock is not None
    directory = unlocked.rename(parent() / unlocked.name.removeprefix("."))
    try:
        groups = cgroups.paths(directory.name)
        (directory / _CGROUPS).write_text("\n".join(map(str, groups)))
        cgroups.create(groups)
        yield directory
    finally:
        _remove(directory)
        os.close(lock)


def cgroups_of(directory: Path) -> list[Path]:
    """Return the cgroups that belong to a work directory."""
    listed = directory / _CGROUPS
    return [Path(line) for line in listed.read_text().splitlines()] if listed.exists() else []


def limited_devices(directory: Path) -> Path:
    """Return the file that lists the devices whose writes the node of a work directory limits."""
    return directory / _LIMITED


def _remove_leftovers() -> None:
    for directory in (*parent().glob(f"{_PREFIX}*"), *_abandoned()):
        lock = _lock(directory)
        if lock is not None:
            try:
                _remove(directory)
            except OSError as error:
                # It must not prevent all further nodes.
                print(f"node: {directory} is left of a killed node: {error}", file=sys.stderr)
            os.close(lock)


def _abandoned() -> Iterator[Path]:
    """Yield the directories of starts that were killed before they locked them."""
    for directory in parent().glob(f"{_UNLOCKED_PREFIX}*"):
        with suppress(FileNotFoundError):
            if time.time() - directory.lstat().st_mtime > _UNLOCKED_SECONDS:
                yield directory


def _lock(directory: Path) -> int | None:
    """Return None if another process holds the lock, or if this user did not make the directory.

    The parent may be writable to all. From a directory of another user, root would take the names
    of directories to remove.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _remove(directory: Path) -> None:
    remove_limits(limited_devices(directory))
    cgroups.remove(cgroups_of(directory))
    shutil.rmtree(directory)
