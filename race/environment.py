"""The environment of a run: what a reader needs to interpret the figures."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from bench.environment import describe_environment

_FROM_BENCH = ("date", "processor", "memory", "system", "Kubernetes")


def describe_run(options: str) -> dict[str, str]:
    """Return the facts that a reader needs. They do not name the machine.

    `options` are those of the command, with their defaults.
    """
    found = describe_environment()
    return {
        "commit of podsettle": found["commit"],
        **{name: found[name] for name in _FROM_BENCH},
        "runc": _version_of("runc"),
        "conmon": _version_of("conmon"),
        "cgroups": "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1",
        "load average before": f"{os.getloadavg()[0]:.1f}",
        "options": f"`{options}`",
    }


def _version_of(program: str) -> str:
    try:
        output = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False
        ).stdout
    except OSError:
        return "none"
    match = re.search(r"version (\S+)", output)
    return match[1] if match else "unknown"
