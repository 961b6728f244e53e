"""A program in the background, held to a core, and what Linux knows of it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_TIMEOUT_SECONDS = 30.0


class Process:
    """A running program."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self.pid = process.pid
        self.log = log

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def cpu_seconds(self) -> float:
        """What it and its children have used so far, in user and kernel mode."""
        return sum(_cpu_ticks(pid) for pid in _process_tree(self.pid)) / _TICKS

    def memory_mib(self, field: str = "VmRSS") -> float:
        """Resident MiB of it and its children; `VmHWM` for the most that it ever was."""
        return sum(_status(pid, field) for pid in _process_tree(self.pid)) / 1024

    def log_tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """Ask it to leave, and make it."""
        self._process.terminate()
        try:
            self._process.wait(_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def running_process(
    command: Sequence[str | Path],
    log: Path,
    *,
    core: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Process]:
    """Run a program while the block runs."""
    with log.open("wb") as output:
        process = Process(
            subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(env or {})},
                # Before the program has threads: each of them would have to be held by itself.
                preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
            ),
            log,
        )
    try:
        yield process
    finally:
        process.stop()


def _process_tree(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _process_tree(int(child))


def _cpu_ticks(pid: int) -> int:
    # The name in parentheses may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # utime, stime, and those of children that have ended.
    return sum(int(field) for field in fields[11:15])


def _status(pid: int, what: str) -> int:
    found = re.search(rf"^{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(found[1]) if found else 0
