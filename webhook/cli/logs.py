"""The command `podsettle logs`, which prints the log of a container."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from webhook.cli.backoff import backoff_options, report_errors
from webhook.cli.options import (
    Cluster,
    cluster_options,
    container_option,
    namespace_option,
    pod_argument,
)

if TYPE_CHECKING:
    from webhook.client import Backoff


@click.command()
@pod_argument
@namespace_option
@container_option
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Wait until the container has started, and read until it has ended.",
)
@click.option(
    "--timestamps", is_flag=True, help="Print the kubelet's timestamp in front of each line."
)
@cluster_options
@backoff_options
def logs(
    pod: str,
    namespace: str | None,
    container: str | None,
    follow: bool,
    timestamps: bool,
    cluster: Cluster,
    backoff: Backoff,
) -> None:
    """Print a container's log, byte for byte, and resume after a broken connection.

    Exit codes: 0 the whole log was read; 1 the program that reads the output has closed it; 2 any
    other error.
    """
    with report_errors(backoff, f"the rest of the log of {pod}"):
        asyncio.run(
            _copy_to_stdout(pod, namespace, container, follow, timestamps, cluster, backoff)
        )


async def _copy_to_stdout(
    pod: str,
    namespace: str | None,
    container: str | None,
    follow: bool,
    timestamps: bool,
    cluster: Cluster,
    backoff: Backoff,
) -> None:
    from webhook.client import ApiServer, PodName, copy_logs

    async with await ApiServer.connect(**cluster) as server:
        name = PodName(namespace or server.namespace, pod)
        await copy_logs(
            server,
            name,
            _write_to_stdout,
            container,
            follow=follow,
            timestamps=timestamps,
            backoff=backoff,
        )


def _write_to_stdout(data: bytes) -> None:
    output = sys.stdout.buffer  # noqa: TID251 (the bytes of a log are not escaped)
    output.write(data)
    output.flush()
