"""Time and memory of a program that visits every descriptor, with and without openFiles."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from lab.provocation import SOURCE
from lab.report import LabError, Outcome, Table, experiment, values
from webhook.core.remedies.open_files import OpenFiles
from webhook.core.remedies.shell_wrapper import exec_wrapper, with_limits
from webhook.linger.build import TARGETS, build, compile_c, host_arch

# What LimitNOFILE=infinity gives on a machine whose systemd has raised fs.nr_open.
_INFINITY = 1_073_741_816
_SETTINGS = OpenFiles(soft=65_536, hard=524_288)


@click.command("open-files")
@click.option(
    "--limit",
    type=click.IntRange(_SETTINGS.hard),
    default=_INFINITY,
    help="The soft and the hard limit. Each descriptor takes four bytes of memory.",
)
@experiment
def open_files(limit: int) -> Outcome:
    """Time a walk of all descriptors, by each wrapper.

    Needs CAP_SYS_RESOURCE, and `sysctl -w fs.nr_open` with the limit, which systemd does on many
    machines.
    """
    table = Table("A walk of all descriptors")
    with tempfile.TemporaryDirectory(prefix="podsettle-open-files-") as scratch:
        directory = Path(scratch)
        linger, walk = build(host_arch(), directory), directory / "walk"
        flags = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-static")
        target = TARGETS[host_arch()]
        compile_c(
            [SOURCE / "walk_descriptors.c"], walk, target=target, flags=flags, directory=SOURCE
        )
        wrappers = {
            "none": [],
            "helper": [str(linger), *_SETTINGS.wrapper.helper_command[1:]],
            "shell": with_limits(exec_wrapper("sh"), _SETTINGS.soft, _SETTINGS.hard),
        }
        for name, wrapper in wrappers.items():
            soft, seconds, kib = _walk([*wrapper, str(walk)], limit)
            table.rows.append(
                {
                    "wrapper": name,
                    "soft limit": values([soft]),
                    "time": values([1000 * seconds], "ms"),
                    "memory": values([kib / 1024], "MiB"),
                }
            )
    return Outcome([table])


def _walk(command: Sequence[str], limit: int) -> tuple[int, float, int]:
    """Return the soft limit, the seconds and the KiB of one walk that begins under a limit."""
    try:
        output = subprocess.check_output(
            command,
            text=True,
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (limit, limit)),
        )
    except subprocess.SubprocessError as error:
        raise LabError(
            f"the limit cannot be {limit}: {error}; run as root with CAP_SYS_RESOURCE, after "
            f"sysctl -w fs.nr_open={limit}"
        ) from error
    soft, seconds, kib = output.split()
    return int(soft), float(seconds), int(kib)
