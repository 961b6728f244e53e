"""A command, its output, and the time and memory that it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.kube.cluster import KubeCluster
from tests.support.process import PODSETTLE

MAX_SECONDS = 120

# The process of a test would add its own size to the peak that the kernel reports of its child.
_MEASURE = """
import json, resource, subprocess, sys, time
began = time.monotonic()
code = subprocess.run(sys.argv[2:], stdout=open(sys.argv[1] + ".out", "wb")).returncode
seconds = time.monotonic() - began
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
json.dump({"code": code, "seconds": seconds, "peak_kib": peak}, open(sys.argv[1], "w"))
"""


class Measured(NamedTuple):
    """A run of a command, its output and what it took."""

    output: str
    code: int
    seconds: float
    peak_kib: int


def measured(
    cluster: KubeCluster | None, directory: Path, *arguments: str, stdin: Path | None = None
) -> Measured:
    """Run podsettle, on a cluster if one is given."""
    result = directory / "measured"
    command = [sys.executable, "-c", _MEASURE, str(result), PODSETTLE, *arguments]
    kubeconfig = str(cluster.kubeconfig) if cluster is not None else os.devnull
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    with (stdin or Path(os.devnull)).open("rb") as opened:
        subprocess.run(command, env=environment, check=True, timeout=2 * MAX_SECONDS, stdin=opened)
    output = result.with_name("measured.out").read_text()
    return Measured(output, **json.loads(result.read_text()))
