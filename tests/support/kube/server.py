"""Programs that run in the background of a test: API server, etcd, the parts of a node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

_DIE_WITH_PARENT = Path(__file__).parents[1] / "die_with_parent.py"
_TIMEOUT_SECONDS = 120.0
_POLL = 0.02
_TAIL = 30


class ServerError(Exception):
    """A server that does not start. The message ends with its log."""


class Server:
    """A program that runs in the background and writes a log."""

    def __init__(
        self,
        program: Path,
        flags: Iterable[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` has variables in addition to those of this process."""
        self._name = program.name
        self._command = [str(program), *flags]
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        guard = [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid())]
        with self._log.open("ab") as log:
            # A session of its own: the terminal's Ctrl-C is for pytest, which then stops the rest.
            self._process = subprocess.Popen(
                [*guard, *self._command],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def await_that(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not condition():
            if not self.running:
                raise ServerError(f"{self._name} ended:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise ServerError(
                    f"waited {_TIMEOUT_SECONDS:.0f} s for {self._name}:\n{self._tail()}"
                )
            time.sleep(_POLL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise ServerError(f"{self._name} did not end:\n{self._tail()}") from None
        self._process = None

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_TAIL:])
