"""What is kept from the garbage collector, and what is not."""

from __future__ import annotations

import subprocess
import sys

_LOOK = """
import gc
threshold = gc.get_threshold()
import webhook.cli
assert gc.get_freeze_count() > 10_000
# `logs -f` and `wait` leave cycles behind, with buffers in them, where connections break.
assert gc.isenabled()
assert gc.get_threshold() == threshold
"""


def test_only_imported_modules_are_frozen() -> None:
    ran = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
