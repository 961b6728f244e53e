"""As much load as a server takes, from wrk: a few connections that ask again once answered."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from bench.errors import BenchError, MissingError
from bench.servers import Server

_SCRIPT = Path(__file__).with_name("reviews.lua")
UNITS = {
    "reviews/s": "/s",
    "reviews per CPU-second": "/CPU-s",
    "p50": "ms",
    "p99": "ms",
}


def wrk() -> str:
    """The load tool."""
    found = shutil.which("wrk")
    if found is None:
        raise MissingError("wrk is not installed (Debian: apt install wrk)")
    return found


def run_wrk(
    server: Server, reviews: list[Path], *, connections: int, seconds: float, core: int
) -> dict[str, float]:
    """Load a server for some seconds; the figures of UNITS."""
    # wrk takes whole seconds.
    command = [wrk(), "--threads", "1", "--connections", str(connections)]
    command += ["--duration", f"{max(1, round(seconds))}s", "--timeout", "10s"]
    command += ["--script", str(_SCRIPT), f"{server.url}?timeout=10s", "--", *map(str, reviews)]
    before = server.process.cpu_seconds()
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    used = server.process.cpu_seconds() - before
    found = re.search(r"^RESULT (.+)$", ran.stdout, re.MULTILINE)
    if ran.returncode or found is None:
        raise BenchError(f"wrk: {ran.stdout}{ran.stderr}")
    result = json.loads(found[1])
    if result["errors"] or not result["requests"]:
        raise BenchError(f"{server.name} failed under load: {ran.stdout}")
    return {
        "reviews/s": result["requests"] / result["microseconds"] * 1e6,
        "reviews per CPU-second": result["requests"] / used,
        "p50": result["p50"] / 1e3,
        "p99": result["p99"] / 1e3,
    }
