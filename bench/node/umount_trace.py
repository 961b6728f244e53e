"""strace on a pod's shim: its umount2 calls with their times, and an optional delay of each call.

strace is right for this although tracepoints are cheaper. The kernel writes the filesystem back
after the system call itself, on the way back to the program. A tracepoint at the call's end does
not see that; a tracer is told of the end only after it (`ptrace_notify` in kernel/signal.c).
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError, MissingError

# Attaching to a shim with a dozen threads takes milliseconds; a busy machine may need longer.
_ATTACH_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.05

_CALL = re.compile(
    r'^(\d+) +[\d.]+ umount2\("([^"]*)", [^)]*?(?:\) += (.*) <([\d.]+)>|<unfinished)'
)
_RESUMED = re.compile(r"^(\d+) +[\d.]+ <\.\.\. umount2 resumed>.*\) += (.*) <([\d.]+)>")


@dataclass(frozen=True, slots=True)
class UmountCall:
    """A finished umount2 call."""

    path: str
    succeeded: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class UmountTrace:
    """A running strace, which writes to a file."""

    output: Path

    def calls(self, path: str) -> list[UmountCall]:
        """Return the calls for a mount point that have finished so far, in order."""
        return [call for call in parse_calls(self.output.read_text()) if call.path == path]


def find_strace() -> str:
    """Return the path of strace. Raises MissingError if it is not installed."""
    found = shutil.which("strace")
    if found is None:
        raise MissingError("strace is not installed (Debian: strace)")
    return found


@contextmanager
def trace_umounts(shim: int, output: Path, delay_seconds: float = 0.0) -> Iterator[UmountTrace]:
    """Trace the umount2 calls of a process. With a delay, each call begins that much later.

    The options are those of the report "containerd init container stuck in Running", and `-T`.
    """
    command = [find_strace(), "-f", "-ttt", "-T", "-e", "trace=umount2", "-b", "execve"]
    if delay_seconds:
        command += ["-e", f"inject=umount2:delay_enter={round(delay_seconds * 1e6)}"]
    messages = output.with_suffix(".messages")
    with messages.open("w") as file:
        process = subprocess.Popen(
            [*command, "-o", str(output), "-p", str(shim)], stdout=file, stderr=file
        )
    try:
        _await_attached(process, messages)
        yield UmountTrace(output)
    finally:
        # strace detaches, and the shim goes on.
        process.send_signal(signal.SIGINT)
        process.wait()


def parse_calls(text: str) -> Iterator[UmountCall]:
    """Yield the finished umount2 calls in the output of strace."""
    unfinished: dict[str, str] = {}
    for line in text.splitlines():
        if call := _CALL.match(line):
            thread, path, result, seconds = call.groups()
            if result is None:
                unfinished[thread] = path
            else:
                yield _call(path, result, seconds)
        elif resumed := _RESUMED.match(line):
            thread, result, seconds = resumed.groups()
            if thread in unfinished:
                yield _call(unfinished.pop(thread), result, seconds)


def _call(path: str, result: str, seconds: str) -> UmountCall:
    return UmountCall(path, result.split()[0] == "0", float(seconds))


def _await_attached(process: subprocess.Popen[bytes], messages: Path) -> None:
    deadline = time.monotonic() + _ATTACH_TIMEOUT_SECONDS
    while " attached" not in messages.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchError(f"strace: cannot attach to the shim: {messages.read_text().strip()}")
        time.sleep(_POLL_SECONDS)
