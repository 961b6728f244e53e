"""The objects that are excluded from garbage collection."""

from __future__ import annotations

import subprocess
import sys

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
