"""Programs that the benchmark runs to their end, and its error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


class BenchError(Exception):
    """The benchmark could not measure reliably. The message contains the reason."""


def run(
    *command: str | Path, core: int | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """Run a program, on one core if it is named, and return its output.

    Raises BenchError if the program fails.
    """
    ran = subprocess.run(
        list(map(str, command)),
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
    )
    if ran.returncode:
        raise BenchError(f"{' '.join(ran.args)}: {ran.stdout}{ran.stderr[-2000:]}")
    return ran.stdout
