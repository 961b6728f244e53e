"""A node's log agent: a real rsyslogd that periodically scans a directory for new log files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from tests.support.needs import path_of
from tests.support.runc import Machine
from tests.support.waiting import TIMEOUT_SECONDS, await_that

# rsyslog's default. Its module `imfile` finds and reads new files only at each scan.
INTERVAL_SECONDS = 10
_CONFIG = """
global(workDirectory="{home}/work")
module(load="imfile" mode="polling" PollingInterval="{interval}")
template(name="line" type="string" string="%msg%\\n")
input(type="imfile" file="{home}/pods/*.log" tag="pods")
action(type="omfile" file="{home}/shipped" template="line")
"""


@dataclass
class LogAgent:
    """A running log agent, and the node's directory of log files."""

    home: Path
    _probes: Iterator[int] = field(default_factory=count)

    @classmethod
    @contextmanager
    def running(cls, home: Path) -> Iterator[LogAgent]:
        """Run a log agent with its own directory while the block runs."""
        for name in ("pods", "work"):
            (home / name).mkdir(parents=True)
        config = home / "rsyslog.conf"
        config.write_text(_CONFIG.format(home=home, interval=INTERVAL_SECONDS))
        program = home / "rsyslogd"  # AppArmor's profile restricts /usr/sbin/rsyslogd
        shutil.copy2(path_of("rsyslogd"), program)
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
        """Return whether the agent has shipped a line with this text."""
        shipped = self.home / "shipped"
        return shipped.exists() and any(text in line for line in shipped.read_text().splitlines())

    def place_probe(self) -> str:
        """Write a log file that is not deleted, and return the text of its only line."""
        text = f"probe {next(self._probes)}."
        (self.home / "pods" / f"{text}log").write_text(_line(text))
        return text

    def await_scan(self) -> None:
        """Wait until the agent has scanned the directory once more."""
        probe = self.place_probe()
        await_that(lambda: self.has_shipped(probe), "the agent scanned")

    def run_pod(self, machine: Machine, name: str, command: list[str]) -> int:
        """Run a container, write its log like a runtime, delete the log, and return the exit code.

        This is a pod whose controller deletes it immediately after its end.
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
    """Return a line of a log file under /var/log/pods, in KEP-1602's CRI format."""
    return f"{datetime.now(UTC).isoformat()} stdout F {text}\n"
