"""Whether a process is in the namespaces of a node.

What starts or removes a node writes to /etc and /var, ends processes, and changes the network.
Outside, it would do so to the machine.
"""

from __future__ import annotations

import os
from pathlib import Path

OUTSIDE = "a real node needs namespaces of its own: run `make node`"
_MARKER = Path("/run/podsettle-node")


class OutsideError(RuntimeError):
    """The process is not in the namespaces of a node."""


def mark() -> None:
    """Mark the mount namespace of this process as a node's."""
    _MARKER.write_text(_namespace())


def is_inside() -> bool:
    """Whether the mount namespace of this process is a node's."""
    # The name of the namespace, so that a file that was copied to the machine means nothing.
    return _MARKER.exists() and _MARKER.read_text() == _namespace()


def require_inside() -> None:
    """Raise OutsideError outside."""
    if not is_inside():
        raise OutsideError(OUTSIDE)


def _namespace() -> str:
    return os.readlink("/proc/self/ns/mnt")
