"""Runs of `linger wait`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.tls_listeners import TIMEOUT_SECONDS, Listener

# Longer than any test: a test that waits for the end of this timeout fails.
AN_HOUR = "1h"
_SECONDS = re.compile(r"after \d+\.\d s$")


def address(listener: Listener) -> str:
    """Return a listener as HOST:PORT."""
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{host}:{listener.port}"


def logged(
    linger: Path | str,
    *arguments: str,
    around: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    timeout: str = AN_HOUR,
) -> list[str]:
    """Return linger's lines, sorted, with `N` for a number of seconds. The exit code must be 0."""
    done = subprocess.run(
        [*around, str(linger), "wait", "--timeout", timeout, *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    lines = done.stderr.splitlines()
    assert all(line.startswith("linger: ") for line in lines), lines
    return sorted(_SECONDS.sub("after N s", line.removeprefix("linger: ")) for line in lines)
