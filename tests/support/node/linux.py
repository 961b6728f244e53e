"""System calls of Linux that Python 3.11 does not offer."""

from __future__ import annotations

import ctypes
import os
import signal
from enum import IntFlag

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class Namespace(IntFlag):
    """The flags of unshare(2)."""

    MOUNT = 0x00020000
    CGROUP = 0x02000000
    UTS = 0x04000000
    IPC = 0x08000000
    PID = 0x20000000
    NETWORK = 0x40000000


def unshare(namespaces: Namespace) -> None:
    """Move this process to new namespaces. A new PID namespace applies to its next child."""
    _check(_LIBC.unshare(ctypes.c_int(int(namespaces))), "unshare")


def end_with_parent(how: signal.Signals) -> None:
    """Let the kernel send a signal to this process when the parent's thread ends."""
    _check(_LIBC.prctl(_PR_SET_PDEATHSIG, int(how)), "prctl")


def _check(result: int, call: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}")
