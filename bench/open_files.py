"""Time and memory of a program that visits every descriptor, with and without openFiles.

    python -m bench.open_files [--limit 1073741816]

Needs the right to raise the hard limit of open files to `--limit`: CAP_SYS_RESOURCE, and
`sysctl -w fs.nr_open=1073741816`, which systemd does on many machines. And four bytes of memory for
each descriptor, so 4 GiB for the default.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.errors import MissingError
from bench.text_table import Cells, aligned_lines
from webhook.core.remedies.open_files import OpenFiles
from webhook.core.remedies.shell_wrapper import exec_wrapper, with_limits
from webhook.linger.build import TARGETS, build, compile_c, host_arch

# What LimitNOFILE=infinity gives on a machine whose systemd has raised fs.nr_open.
_INFINITY = 1_073_741_816
_SOURCE = Path(__file__).parent / "src"
_SETTINGS = OpenFiles(soft=65_536, hard=524_288)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.open_files", description="Time and memory of a walk of descriptors."
    )
    parser.add_argument("--limit", type=int, default=_INFINITY, help="the soft and the hard limit")
    limit: int = parser.parse_args(arguments).limit
    target = TARGETS[host_arch()]
    with tempfile.TemporaryDirectory(prefix="podsettle-open-files-") as scratch:
        directory = Path(scratch)
        linger = build(host_arch(), directory)
        walk = directory / "walk"
        compile_c(
            [_SOURCE / "walk_descriptors.c"],
            walk,
            target=target,
            flags=("-std=c11", "-D_GNU_SOURCE", "-O2", "-static"),
            directory=_SOURCE,
        )
        script = with_limits(exec_wrapper("sh"), _SETTINGS.soft, _SETTINGS.hard)
        table: Cells = [("wrapper", "soft limit", "seconds", "MiB")]
        table += [
            (name, *_walk([*wrapper, str(walk)], limit))
            for name, wrapper in (
                ("none", []),
                ("helper", [str(linger), *_SETTINGS.wrapper.helper_command[1:]]),
                ("shell", script),
            )
        ]
    sys.stdout.writelines(f"{line}\n" for line in aligned_lines(table))
    return 0


def _walk(command: Sequence[str], limit: int) -> tuple[str, str, str]:
    """Return the soft limit, the seconds and the MiB of one walk that begins under a limit."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (limit, limit)),
        )
    except subprocess.SubprocessError as error:
        raise MissingError(
            f"the limit cannot be {limit}: {error}; run as root with CAP_SYS_RESOURCE, after "
            f"sysctl -w fs.nr_open={limit}"
        ) from error
    soft, seconds, kib = done.stdout.split()
    return f"{int(soft):,}", seconds, f"{int(kib) / 1024:.1f}"


if __name__ == "__main__":
    sys.exit(main())
