"""`linger wait-kubelet`, run by a test."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.tls_listeners import PATIENCE, Listener

AN_HOUR = "1h"  # a test that has to wait for it to pass has failed


READY = "is ready: it begins a TLS handshake"


def waiting(listener: Listener, timeout: str = AN_HOUR) -> list[str]:
    """The arguments of linger that wait for a listener."""
    return ["wait-kubelet", "--timeout", timeout, "--port", str(listener.port)]


def wait(linger: Path, *arguments: str, host: str | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [linger, *arguments],
        env={"HOST_IP": host} if host is not None else {},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def said(linger: Path, listener: Listener, timeout: str = AN_HOUR) -> str:
    """What linger says of a listener: one line, for it always ends well."""
    done = wait(linger, *waiting(listener, timeout), host=listener.host)
    assert (done.returncode, done.stdout) == (0, "")
    prefix = "linger: "
    (line,) = done.stderr.splitlines()
    assert line.startswith(prefix)
    return line.removeprefix(prefix)
