"""The time that a process spends in umount2.

The kernel writes the filesystem back after the system call itself, on the way back to the program.
A tracepoint at the call's end does not see that, but /proc/PID/task/TID/syscall shows the call
until the thread is back in the program.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

POLL_SECONDS = 0.01
_UMOUNT2 = {"aarch64": "39", "x86_64": "166"}


class UmountClock:
    """Samples the threads of a process in the background."""

    def __init__(self, process: int, call: str) -> None:
        self._tasks = Path(f"/proc/{process}/task")
        self._call = call
        self._end = threading.Event()
        self._seconds = 0.0

    @classmethod
    @contextmanager
    def of(cls, process: int, call: str = "") -> Iterator[UmountClock]:
        """Sample a process until the block ends. `call` is the number of another system call."""
        clock = cls(process, call or _UMOUNT2[platform.machine()])
        thread = threading.Thread(target=clock._sample, daemon=True)
        thread.start()
        try:
            yield clock
        finally:
            clock._end.set()
            thread.join()

    @property
    def seconds(self) -> float:
        """The time so far. It is 0 for calls that end between two samples."""
        return self._seconds

    def _sample(self) -> None:
        before = time.monotonic()
        was_inside = False
        while not self._end.wait(POLL_SECONDS):
            now, is_inside = time.monotonic(), self._is_inside()
            if was_inside and is_inside:
                self._seconds += now - before
            before, was_inside = now, is_inside

    def _is_inside(self) -> bool:
        found = []
        # The process and its threads may end at any time.
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in self._tasks.iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):
                    found.append((task / "syscall").read_text().split()[0])
        return self._call in found
