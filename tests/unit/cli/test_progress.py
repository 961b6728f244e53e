"""The progress bar on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

SCRIPT = """
from webhook.cli.echo import Progress
with Progress({delay}, 0) as progress:
    progress.show("pods", 10, 40)
    progress.show("pods", 20, 40)
    progress.show("eve\\x1bnts", 5, None)
"""


def on_terminal(script: str) -> str:
    """Run Python with a terminal as standard error, and return what it shows."""
    master, slave = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", script], stderr=slave, check=True, timeout=60)
        os.set_blocking(master, False)
        return os.read(master, 65_536).decode()
    except BlockingIOError:
        return ""
    finally:
        os.close(master)
        os.close(slave)


def test_long_work_has_a_bar_that_is_removed_at_the_end() -> None:
    shown = re.sub(r"\x1b\[[0-9;]+m", "", on_terminal(SCRIPT.format(delay=0)))
    assert re.search(r"pods \S*━\S* 10/40", shown)
    assert re.search(r"pods \S*━\S* 20/40", shown)
    assert re.search(r"eve\\x1bnts .*5/\?", shown), "labels are escaped, and have no old length"
    # The line is empty, and the cursor is visible again.
    assert shown.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")


def test_short_work_shows_nothing() -> None:
    assert on_terminal(SCRIPT.format(delay=60)) == ""


def test_nothing_is_shown_without_a_terminal() -> None:
    script = SCRIPT.format(delay=0)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stderr == b""
