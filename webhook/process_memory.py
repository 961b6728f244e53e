"""Python's garbage collector, kept from going through what is there to stay."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_ALLOCATIONS = 10_000
"""Between two looks for cycles; a review leaves next to none behind."""


@contextmanager
def frozen_imports() -> Iterator[None]:
    """Make modules, models and the like: nothing of it is ever looked at again.

    Looking through it again and again, and finding next to nothing, takes a tenth of a start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def tune_gc_for_server() -> None:
    """The same for all that there is, and fewer looks: it is busy, and leaves little behind."""
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)


def malloc_trim() -> None:
    """Let the system have what was freed; glibc by itself gives back what is at the end only.

    Other C libraries have no such call, and keep what they keep.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
