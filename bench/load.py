"""Load on a server, by wrk as fast as it answers, or at a constant rate."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.commands import BenchError, run
from bench.servers import Server

# Eight connections keep one core busy. The API server keeps up to 25 idle connections.
CONNECTIONS = 8
_SCRIPT = Path(__file__).with_name("reviews.lua")


def run_wrk(server: Server, files: Sequence[Path], seconds: float, core: int) -> dict[str, float]:
    """Load a server for whole seconds with a wrk that is pinned to `core`.

    Each of its connections waits for an answer before its next request. Return the figures
    `reviews/s` and `reviews per CPU-second`. Raises BenchError if a single request fails.
    """
    wrk = shutil.which("wrk")
    if wrk is None:
        raise BenchError("wrk is not installed. On Debian: apt install wrk")
    command = [wrk, "--threads", "1", "--connections", str(CONNECTIONS)]
    command += ["--duration", f"{max(1, round(seconds))}s", "--timeout", "10s"]
    command += ["--script", str(_SCRIPT), f"{server.url}?timeout=10s", "--", *map(str, files)]
    before = server.cpu_seconds()
    output = run(*command, core=core)
    cpu_seconds = server.cpu_seconds() - before
    line = re.search(r"^RESULT (.+)$", output, re.MULTILINE)
    result = json.loads(line[1]) if line else {"errors": 1}
    if result["errors"] or not result["requests"]:
        raise BenchError(f"{server.url} failed under load: {output}")
    return {
        "reviews/s": result["requests"] / result["microseconds"] * 1e6,
        "reviews per CPU-second": result["requests"] / cpu_seconds,
    }


def run_open_loop(
    server: Server, files: Sequence[Path], rate: float, seconds: float, core: int
) -> dict[str, float]:
    """Send `rate` reviews per second from `core`. Return milliseconds: `p99`, `longest`, `delay`.

    `delay` is by how much the load generator itself was late, p99. Raises BenchError if a single
    request fails.
    """
    plan = {
        "url": server.url,
        "ca": str(server.ca),
        "reviews": list(map(str, files)),
        "rate": rate,
        "connections": CONNECTIONS,
        "seconds": seconds,
    }
    output = run(sys.executable, "-m", "bench.open_loop", json.dumps(plan), core=core)
    figures: dict[str, Any] = json.loads(output)
    return figures
