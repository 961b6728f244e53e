"""The command `podsettle logs`, which prints the log of a container."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from webhook.cli.backoff import backoff_options, report_errors
from webhook.cli.options import KUBECTL_DURATION, Cluster, cluster_options, container_options

if TYPE_CHECKING:
    from webhook.client import Backoff


@click.command()
@container_options
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Wait until the container has started, and read until it has ended.",
)
@click.option(
    "--timestamps", is_flag=True, help="Print the kubelet's timestamp in front of each line."
)
@click.option(
    "--tail",
    type=click.IntRange(min=-1),
    default=-1,
    metavar="LINES",
    show_default="-1, which is all",
    help="Print only so many lines of the end of the log, and what follows.",
)
@click.option(
    "--since",
    type=KUBECTL_DURATION,
    metavar="DURATION",
    help="Print only lines that are newer than this, such as 5m.",
)
@click.option(
    "-p",
    "--previous",
    is_flag=True,
    help="Print the log of the run before the last restart of the container.",
)
@cluster_options
@backoff_options
def logs(
    pod: str,
    namespace: str | None,
    container: str | None,
    follow: bool,
    timestamps: bool,
    tail: int,
    since: timedelta | None,
    previous: bool,
    cluster: Cluster,
    backoff: Backoff,
) -> None:
    """Print a container's log, byte for byte, and resume after a broken connection.

    Exit codes: 0 the whole log was read; 1 the program that reads the output has closed it; 2 any
    other error.
    """
    if previous and follow:
        raise click.UsageError("--previous is a run that has ended: -f has no effect on it")

    async def copy() -> None:
        from webhook.client import PodName, copy_logs

        async with await cluster.connect() as server:
            await copy_logs(
                server,
                PodName(namespace or server.namespace, pod),
                _write_to_stdout,
                container=container,
                follow=follow,
                timestamps=timestamps,
                tail_lines=None if tail < 0 else tail,
                since_seconds=since.total_seconds() if since else None,
                previous=previous,
                backoff=backoff,
            )

    with report_errors(backoff, f"the rest of the log of {pod}"):
        asyncio.run(copy())


def _write_to_stdout(data: bytes) -> None:
    output = sys.stdout.buffer  # noqa: TID251 (the bytes of a log are not escaped)
    output.write(data)
    output.flush()
