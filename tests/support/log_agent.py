"""A node's log agent: a real rsyslogd that scans a directory for new log files at an interval."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from tests.support.runc import Machine
from tests.support.waiting import await_that

INTERVAL_SECONDS = 10
"""rsyslog's default. `imfile` finds and reads new files at each scan, and only then."""
TIMEOUT_SECONDS = 60.0
_CONFIG = """
global(workDirectory="{home}/work")
module(load="imfile" mode="polling" PollingInterval="{interval}")
template(name="line" type="string" string="%msg%\\n")
input(type="imfile" file="{home}/pods/*.log" tag="pods")
action(type="omfile" file="{home}/shipped" template="line")
"""


def missing() -> str | None:
    """Why there is no agent here, or None."""
    return None if _rsyslogd() else "rsyslogd is not installed"


def _rsyslogd() -> str | None:
    return shutil.which("rsyslogd", path="/usr/sbin:/usr/bin:/sbin:/bin")


@dataclass
class LogAgent:
    """A running agent, and the node's directory of log files."""

    home: Path
    _probes: Iterator[int] = field(default_factory=count)

    @classmethod
    @contextmanager
    def running(cls, home: Path) -> Iterator[LogAgent]:
        """An agent with a directory of its own."""
        for name in ("pods", "work"):
            (home / name).mkdir(parents=True)
        config = home / "rsyslog.conf"
        config.write_text(_CONFIG.format(home=home, interval=INTERVAL_SECONDS))
        program = home / "rsyslogd"  # AppArmor's profile is for /usr/sbin/rsyslogd
        shutil.copy2(_rsyslogd() or "", program)
        process = subprocess.Popen(
            [program, "-n", "-f", str(config), "-i", str(home / "pid")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield cls(home)
        finally:
            process.terminate()
            process.wait(TIMEOUT_SECONDS)

    def has_shipped(self, text: str) -> bool:
        """Whether a line with this text has left the node."""
        shipped = self.home / "shipped"
        return shipped.exists() and any(text in line for line in shipped.read_text().splitlines())

    def place_probe(self) -> str:
        """Write a log file that stays, and return the text that its only line has."""
        text = f"probe {next(self._probes)}."
        (self.home / "pods" / f"{text}log").write_text(_line(text))
        return text

    def await_scan(self) -> None:
        """Wait until the agent has scanned the directory, from now on."""
        probe = self.place_probe()
        await_that(lambda: self.has_shipped(probe), "the agent scanned", TIMEOUT_SECONDS)

    def run_pod(self, machine: Machine, name: str, command: list[str]) -> int:
        """Run a container to its end, log it as a runtime does, delete the log; the exit code.

        That is a pod that its controller deletes as soon as it has finished.
        """
        log = self.home / "pods" / f"{name}.log"
        with machine.start(command) as container, log.open("w") as file:
            assert container.runc.stdout is not None
            for line in container.runc.stdout:
                file.write(_line(line.decode().rstrip("\n")))
                file.flush()
            code = container.runc.wait(TIMEOUT_SECONDS)
        log.unlink()
        return code


def _line(text: str) -> str:
    """A line of a log file under /var/log/pods (KEP-1602's CRI format)."""
    return f"{datetime.now(UTC).isoformat()} stdout F {text}\n"
