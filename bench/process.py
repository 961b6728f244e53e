"""Background processes, pinned to a core, with their CPU time and memory from /proc."""

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
    """A background process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self.pid = process.pid
        self.log = log

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process and its descendants, in user and kernel mode."""
        return sum(map(_cpu_ticks, self.tree())) / _TICKS

    def memory_mib(self, field: str = "VmRSS") -> float:
        """Return the resident memory of the process in MiB, without its descendants.

        `field` is a field of /proc/PID/status: `VmRSS` for the current value, `VmHWM` for the peak.
        """
        return _status(self.pid, field) / 1024

    def tree_memory_mib(self) -> float:
        """Return the resident memory of the process and its descendants in MiB.

        Pages that several of them share count several times.
        """
        return sum(_status(pid, "VmRSS") for pid in self.tree()) / 1024

    def tree(self) -> list[int]:
        """Return the IDs of the process and of its descendants."""
        return list(_process_tree(self.pid))

    def log_tail(self) -> str:
        """Return the end of the process' log."""
        return self.log.read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL if the process does not exit in time."""
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
    """Run a program in the background while the block runs, with its output in `log`."""
    with log.open("wb") as output:
        process = Process(
            subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(env or {})},
                # This runs in the child before exec, so all threads of the program inherit the
                # setting.
                preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
            ),
            log,
        )
    try:
        yield process
    finally:
        process.stop()


def _process_tree(pid: int) -> Iterator[int]:
    """Yield the IDs of a process and of all its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _process_tree(int(child))


def _cpu_ticks(pid: int) -> int:
    # The name in parentheses may contain any character, also spaces and parentheses.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # utime and stime of the process, cutime and cstime of children that have exited.
    return sum(int(field) for field in fields[11:15])


def _status(pid: int, field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(match[1]) if match else 0
