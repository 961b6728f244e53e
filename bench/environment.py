"""The environment of a run: the commit, versions of programs, and the machine's hardware."""

from __future__ import annotations

import os
import platform
import re
import ssl
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tools.kube_versions import MODULES, chosen, releases
from tools.pythons import dockerfile_version

_PACKAGES = ("fastapi", "h11", "msgspec", "uvicorn", "uvloop")


def describe_environment(folder: str) -> dict[str, str]:
    """Return the facts that a reader needs to interpret the figures of the programs in a folder.

    They do not name the machine.
    """
    commit = _git("rev-parse", "--short=12", "HEAD") or "unknown"
    has_changes = _git("status", "-s", "--", "webhook", folder)
    model = _find("/proc/cpuinfo", r"^model name\s*: (.+)$")
    kibibytes = int(_find("/proc/meminfo", r"^MemTotal:\s+(\d+)"))
    system = _find("/etc/os-release", r'^PRETTY_NAME="?([^"\n]+)')
    return {
        "commit": f"{commit}{' and uncommitted changes' if has_changes else ''}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": f"{model}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{kibibytes / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}, {system}",
        "load average before": f"{os.getloadavg()[0]:.2f}",
        "Python": f"{platform.python_version()} (the image has {dockerfile_version()})",
        **{package: version(package) for package in _PACKAGES},
        "TLS": " ".join(ssl.OPENSSL_VERSION.split()[:2]),
        "Kubernetes": releases(MODULES[chosen()])["kubernetes"],
    }


def _git(*arguments: str) -> str:
    command = ("git", "-C", str(Path(__file__).parents[1]), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _find(path: str, pattern: str) -> str:
    """Return the first group of a pattern's first match in a file, or `unknown`."""
    match = re.search(pattern, Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else "unknown"
