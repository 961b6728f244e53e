"""The states of all processes of a PID namespace, for the message of a test that waited in vain."""

from __future__ import annotations

import os
from pathlib import Path

_STATUS_FIELDS = ("NSpid", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")


def process_table(pid: int) -> str:
    """Return a line for each process in the PID namespace of a process: job control, signals.

    `tpgid` is the foreground process group of its terminal, and `wchan` the kernel's function in
    which it waits. The sets of signals are hexadecimal, with bit 0 for signal 1.
    """
    try:
        namespace = os.readlink(f"/proc/{pid}/ns/pid")
    except OSError as error:
        return f"no processes of the container: {error}"
    lines = []
    for directory in sorted(Path("/proc").glob("[1-9]*"), key=lambda found: int(found.name)):
        try:
            if os.readlink(directory / "ns/pid") == namespace:
                lines.append(_line(directory))
        except OSError:
            continue  # it has ended
    return "\n".join(lines)


def _line(directory: Path) -> str:
    # The name is in parentheses, and may contain spaces and parentheses.
    before, _, after = (directory / "stat").read_text().rpartition(")")
    pid, _, name = before.partition(" (")
    state, ppid, pgid, session, _terminal, tpgid = after.split()[:6]
    status = dict(line.split(":\t", 1) for line in (directory / "status").read_text().splitlines())
    signals = " ".join(f"{field}={status[field].strip()}" for field in _STATUS_FIELDS)
    return (
        f"pid={pid} {name} state={state} ppid={ppid} pgid={pgid} session={session} "
        f"tpgid={tpgid} wchan={(directory / 'wchan').read_text()} {signals}"
    )
