"""The environment of a run: the commit, versions of packages, and the machine's hardware."""

from __future__ import annotations

import os
import platform
import re
import ssl
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tools import build
from tools.kube_versions import MODULES, chosen, releases
from tools.pythons import dockerfile_version

_ROOT = Path(__file__).parents[1]
PROCESSOR = "processor"
_PACKAGES = ("fastapi", "h11", "msgspec", "orjson", "uvicorn", "uvloop")


def describe_environment() -> dict[str, str]:
    """Return the facts that a reader needs to interpret the figures. They do not name the
    machine."""
    model = _find("/proc/cpuinfo", r"^model name\s*: (.+)$")
    kibibytes = int(_find("/proc/meminfo", r"^MemTotal:\s+(\d+)"))
    return {
        # A run itself changes docs/.
        "commit": checked_out_commit("webhook", "bench"),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        PROCESSOR: f"{model}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{kibibytes / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}, {_distribution()}",
        "load average before": f"{os.getloadavg()[0]:.2f}",
        "Python": _python(),
        **{package: version(package) for package in _PACKAGES},
        "TLS": " ".join(ssl.OPENSSL_VERSION.split()[:2]),
        "wrk": _output_of("wrk", "-v").partition(" [")[0].removeprefix("wrk ") or "none",
        "Kubernetes": releases(MODULES[chosen()])["kubernetes"],
        "Go": _go_release().removeprefix("go"),
    }


def _python() -> str:
    """Return the version of Python, which is also that of podsettle and of the echo."""
    version, image = platform.python_version(), dockerfile_version()
    if version.startswith(f"{image}."):
        return f"{version} (the image's release)"
    return f"{version} (NOT the image's release, which is {image})"


def _go_release() -> str:
    """Return the Go release that built agnhost."""
    if not build.is_built(build.PEERS):
        return "none"
    # The linker writes the release into the program, so Go itself is not needed to read it.
    match = re.search(
        rb"\xff Go buildinf:.{18,20}(go\d+\.\d+(?:\.\d+)?)",
        build.agnhost().read_bytes(),
        re.DOTALL,
    )
    return match[1].decode() if match else "unknown"


def checked_out_commit(*paths: str) -> str:
    """Return the commit of the checkout, and whether files in these paths differ from it."""
    commit = _output_of("git", "-C", str(_ROOT), "rev-parse", "--short=12", "HEAD").strip()
    changed = _output_of("git", "-C", str(_ROOT), "status", "--porcelain", "--", *paths)
    return f"{commit or 'unknown'}{' and uncommitted changes' if changed.strip() else ''}"


def _distribution() -> str:
    return _find("/etc/os-release", r'^PRETTY_NAME="?([^"\n]+)')


def _find(path: str, pattern: str) -> str:
    """Return the first group of a pattern's first match in a file, or `unknown`."""
    match = re.search(pattern, Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else "unknown"


def _output_of(*command: str) -> str:
    """Return the output of a command. It is empty if the program does not exist."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return process.stdout + (process.stderr if command[0] != "git" else "")
