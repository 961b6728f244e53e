"""The helper as a process of a test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 180.0


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with options of `subprocess.run`."""
    options = {"stdin": subprocess.DEVNULL} | options if "input" not in options else options
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, **options
    )


@contextmanager
def start(linger: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    # In a new session, which has no controlling terminal.
    process = subprocess.Popen(
        [linger, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT_SECONDS)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")
