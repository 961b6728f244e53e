"""linger as a process of a test: its end, its lines, and what it waits for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.process import run
from tests.support.tls_listeners import Listener
from tests.support.waiting import TIMEOUT_SECONDS

# Longer than any test: a test that waits for the end of this timeout fails.
AN_HOUR = "1h"
READY = "is ready: it begins a TLS handshake"
_SECONDS = re.compile(r"after \d+\.\d s$")


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


def _logged(*command: str | Path, env: Mapping[str, str] | None) -> list[str]:
    """Return linger's lines without its name. The exit code must be 0."""
    done = run(*command, env=env)
    assert (done.returncode, done.stdout) == (0, "")
    lines = done.stderr.splitlines()
    assert all(line.startswith("linger: ") for line in lines), lines
    return [line.removeprefix("linger: ") for line in lines]


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
    """Return the lines of `linger wait`, sorted, with `N` for a number of seconds."""
    lines = _logged(*around, linger, "wait", "--timeout", timeout, *arguments, env=env)
    return sorted(_SECONDS.sub("after N s", line) for line in lines)


def wait_arguments(listener: Listener, timeout: str = AN_HOUR) -> list[str]:
    """Return linger's arguments for waiting for a listener as a kubelet."""
    return ["wait-kubelet", "--timeout", timeout, "--port", str(listener.port)]


def logged_line(linger: Path, listener: Listener, timeout: str = AN_HOUR) -> str:
    """Return the only line of `linger wait-kubelet` about a listener."""
    arguments = wait_arguments(listener, timeout)
    (line,) = _logged(linger, *arguments, env={"HOST_IP": listener.host})
    return line
