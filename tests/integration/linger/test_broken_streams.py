"""Tests of the helper with standard streams that are closed or broken."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.process import free_port
from tests.support.waiting import TIMEOUT_SECONDS


def run_without_reader(
    *command: str | Path, stream: str = "stderr", env: dict[str, str] | None = None
) -> int:
    """Return the exit code of a command that writes one stream to a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        # subprocess restores the default disposition of SIGPIPE, which containers also have.
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=writer if stream == "stdout" else subprocess.DEVNULL,
            stderr=writer if stream == "stderr" else subprocess.DEVNULL,
            timeout=TIMEOUT_SECONDS,
            check=False,
            env=os.environ | (env or {}),
        )
        return done.returncode
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--", "/nope"], 127),
        (["--min-lifetime=1ms", "--", "/tmp"], 126),
        (["--", "sh", "-c", "exit 42"], 42),
        (["install", "/nope/x"], 1),
        (["install"], 2),
        (["--sleep", "x", "--", "true"], 2),
        ([], 2),
        (["wait-kubelet"], 0),
        (["wait-kubelet", "--timeout", "x"], 2),
    ],
    ids=str,
)
def test_broken_stderr_does_not_change_the_exit_code(
    linger: Path, arguments: list[str], code: int
) -> None:
    assert run_without_reader(linger, *arguments, env={"HOST_IP": "nowhere"}) == code


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_broken_stdout_does_not_change_the_exit_code(linger: Path, argument: str) -> None:
    assert run_without_reader(linger, argument, stream="stdout") == 0


def test_wait_kubelet_with_a_broken_stderr_exits_with_0_at_the_timeout(linger: Path) -> None:
    """No kubelet listens on the port, so the connection is refused until the timeout."""
    arguments = ["wait-kubelet", "--timeout", "1ms", "--port", str(free_port())]
    assert run_without_reader(linger, *arguments, env={"HOST_IP": "127.0.0.1"}) == 0


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that every user can read and write. pytest's directories are private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@pytest.mark.needs("root")
@pytest.mark.parametrize("blocked", [False, True])
def test_broken_stderr_leaves_no_pending_sigpipe_for_an_unforked_command(
    linger: Path, public_directory: Path, blocked: bool
) -> None:
    script = (
        "import os, resource, signal, sys\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        "if sys.argv[1] == 'True': signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))\n"
        "os.setuid(int(sys.argv[2]))\n"
        "os.execv(sys.argv[3], sys.argv[3:])"
    )
    report = public_directory / "report"
    copy = shutil.copy(linger, public_directory / "linger")
    uid = 20_000 + os.getpid() % 40_000
    # Only shell builtins, because this process cannot fork.
    read = f'while read -r line; do echo "$line"; done < /proc/self/status > {report}; exit 42'
    command = [copy, "--min-lifetime", "1h", "--", "bash", "-c", read]
    code = run_without_reader(sys.executable, "-c", script, str(blocked), str(uid), *command)
    assert code == 42
    fields = dict(line.split(":", 1) for line in report.read_text().splitlines() if ":" in line)
    bit = 1 << signal.SIGPIPE - 1
    assert bool(int(fields["SigBlk"], 16) & bit) is blocked
    assert not int(fields["SigPnd"], 16) & bit
    assert not int(fields["SigIgn"], 16) & bit
