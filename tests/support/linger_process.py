"""The helper as a process of a test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TIMEOUT_SECONDS = 180.0


def run(linger: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [linger, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
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
