"""Freed memory is returned to the system, and modules are excluded from garbage collection."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

_FREED = """
from pathlib import Path
from webhook.process_memory import malloc_trim

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

blocks = [bytes(2000) for _ in range(20_000)]
last = blocks[-1]
blocks.clear()
before = resident()
malloc_trim()
print(before - resident())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="glibc only")
def test_memory_freed_below_a_used_block_is_returned() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", _FREED], capture_output=True, text=True, check=True
    ).stdout

    assert int(printed) > 20_000_000


_CODE = """
import gc
threshold = gc.get_threshold()
import click
from webhook.cli import main
assert main.get_command(click.Context(main), "logs") is not None
assert gc.get_freeze_count() > 10_000
# When connections break, `logs -f` and `wait` leave cycles with buffers behind.
assert gc.isenabled()
assert gc.get_threshold() == threshold
"""


def test_imports_freeze_modules_and_keep_the_collector_enabled() -> None:
    ran = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
