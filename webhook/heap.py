"""Memory that is free, given back to the system."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Let the system have what was freed; glibc by itself gives back what is at the end only.

    Other C libraries have no such call, and keep what they keep.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
