"""Tuning of Python's garbage collector and of the C library's heap."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SERVER_THRESHOLD = 10_000
"""Net allocations between two collections. A review leaves almost no reference cycles behind."""


@contextmanager
def frozen_imports() -> Iterator[None]:
    """Exclude the objects that the block creates from garbage collection. For imports.

    Collections during imports find almost nothing and take a tenth of the start time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def tune_gc_for_server() -> None:
    """Freeze all objects, and raise the threshold of the garbage collector."""
    gc.freeze()
    gc.set_threshold(_SERVER_THRESHOLD)


def malloc_trim() -> None:
    """Return freed memory to the system. Does nothing where libc has no malloc_trim (musl).

    Without this call, glibc returns only free memory at the end of the heap.
    """
    import ctypes  # At the top, it would slow down each start of the command line.

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
