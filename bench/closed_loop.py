"""Closed-loop load by wrk: each connection waits for an answer before its next request."""

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
    """Return the path of wrk. Raises MissingError if wrk is not installed."""
    path = shutil.which("wrk")
    if path is None:
        raise MissingError("wrk is not installed. On Debian: apt install wrk")
    return path


def run_wrk(
    server: Server, reviews: list[Path], *, connections: int, seconds: float, core: int
) -> dict[str, float]:
    """Load a server for some seconds with a wrk that is pinned to `core`.

    Return the figures of UNITS. Raises BenchError if a single request fails.
    """
    # wrk accepts only whole seconds.
    command = [wrk(), "--threads", "1", "--connections", str(connections)]
    command += ["--duration", f"{max(1, round(seconds))}s", "--timeout", "10s"]
    command += ["--script", str(_SCRIPT), f"{server.url}?timeout=10s", "--", *map(str, reviews)]
    before = server.process.cpu_seconds()
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    cpu_seconds = server.process.cpu_seconds() - before
    line = re.search(r"^RESULT (.+)$", process.stdout, re.MULTILINE)
    if process.returncode or line is None:
        raise BenchError(f"wrk: {process.stdout}{process.stderr}")
    result = json.loads(line[1])
    if result["errors"] or not result["requests"]:
        raise BenchError(f"{server.name} failed under load: {process.stdout}")
    return {
        "reviews/s": result["requests"] / result["microseconds"] * 1e6,
        "reviews per CPU-second": result["requests"] / cpu_seconds,
        "p50": result["p50"] / 1e3,
        "p99": result["p99"] / 1e3,
    }
