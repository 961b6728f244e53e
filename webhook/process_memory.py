"""Tuning of Python's garbage collector and of the C library's heap."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SERVER_THRESHOLD = 10_000
"""Number of allocations minus deallocations at which a collection starts. A review creates almost
no reference cycles, so rare collections suffice."""
_M_MMAP_THRESHOLD = -3
"""The parameter of mallopt, from glibc's malloc.h."""
_MMAP_THRESHOLD_BYTES = 256 * 1024
"""Blocks of at least this length are returned to the operating system when they are freed."""
_M_TRIM_THRESHOLD = -1
_TRIM_THRESHOLD_BYTES = 1024 * 1024
"""The free memory at the end of the heap that is kept. Of glibc's 128 KiB, a large review needs
more, and would take it from the operating system each time."""


@contextmanager
def imports_excluded_from_gc() -> Iterator[None]:
    """Disable garbage collection while the block imports modules, and freeze their objects.

    Collections during imports find almost no garbage and take a tenth of the start time. Frozen
    objects are ignored by later collections.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def tune_memory_for_server() -> None:
    """Freeze all current objects, make garbage collections rare, and fix malloc's thresholds.

    uvloop keeps a buffer of 256 KiB for each TLS connection. After the first one is freed, glibc
    takes them from the heap, where the used parts of freed buffers stay: 80 KiB more for each
    connection, and 140 KiB after two floods of connections.
    """
    gc.freeze()
    gc.set_threshold(_SERVER_THRESHOLD)
    _call_libc("mallopt", _M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
    _call_libc("mallopt", _M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)


def malloc_trim() -> None:
    """Return freed memory to the operating system.

    Without this call, glibc returns only the free memory at the end of the heap.
    """
    _call_libc("malloc_trim", 0)


def _call_libc(name: str, *arguments: int) -> None:
    """Call a function of glibc. Do nothing with musl, which has none of these functions."""
    import ctypes  # A module-level import would slow down each start of the command line.

    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
