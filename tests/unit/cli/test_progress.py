"""The progress bar on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

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


WITHOUT_COLOURS = """
import click
click.Context(click.Command("scan"), color=False).scope().__enter__()
"""


@pytest.mark.parametrize("before", ["", WITHOUT_COLOURS], ids=["colours", "NO_COLOR"])
def test_long_work_has_a_bar_that_is_removed_at_the_end(before: str) -> None:
    shown = on_terminal(before + SCRIPT.format(delay=0))
    assert "pods  [#########---------------------------]  10/40" in shown
    assert "20/40" in shown
    assert "eve\\x1bnts" in shown, "labels are escaped"
    # The line is empty, and the cursor is visible again.
    assert shown.endswith("\r\x1b[K\x1b[?25h")
    assert "\n" not in shown


def test_short_work_shows_nothing() -> None:
    assert on_terminal(SCRIPT.format(delay=60)) == ""


def test_nothing_is_shown_without_a_terminal() -> None:
    script = SCRIPT.format(delay=0)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stderr == b""
