"""Runs of `linger wait-kubelet`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.tls_listeners import TIMEOUT_SECONDS, Listener

# Longer than any test: a test that waits for the end of this timeout fails.
AN_HOUR = "1h"
READY = "is ready: it begins a TLS handshake"


def wait_arguments(listener: Listener, timeout: str = AN_HOUR) -> list[str]:
    """Return linger's arguments for waiting for a listener."""
    return ["wait-kubelet", "--timeout", timeout, "--port", str(listener.port)]


def wait(linger: Path, *arguments: str, host: str | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [linger, *arguments],
        env={"HOST_IP": host} if host is not None else {},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def logged_line(linger: Path, listener: Listener, timeout: str = AN_HOUR) -> str:
    """Return linger's only line about a listener. The exit code must be 0."""
    done = wait(linger, *wait_arguments(listener, timeout), host=listener.host)
    assert (done.returncode, done.stdout) == (0, "")
    prefix = "linger: "
    (line,) = done.stderr.splitlines()
    assert line.startswith(prefix)
    return line.removeprefix(prefix)
