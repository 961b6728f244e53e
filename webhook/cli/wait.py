"""The command `podsettle wait`, which waits for the exit code of a container."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from webhook.cli.backoff import backoff_options, report_errors
from webhook.cli.echo import echo, echo_document
from webhook.cli.options import (
    KUBECTL_DURATION,
    Cluster,
    cluster_options,
    container_options,
    output_option,
)

if TYPE_CHECKING:
    from webhook.client import Backoff, Termination

# The largest exit code of a Linux process. Windows containers can have larger codes. Without this
# limit, podsettle would exit with 0 for 256.
_MAX_EXIT_CODE = 255


@click.command()
@container_options
@click.option(
    "--for",
    type=click.Choice(["terminated"]),
    default="terminated",
    expose_value=False,
    help="The event to wait for.",
)
@click.option(
    "--timeout",
    type=KUBECTL_DURATION,
    metavar="DURATION",
    show_default="no limit, because a build takes as long as it takes; kubectl wait has 30s",
    help="How long to wait. 0 means to look at the pod once.",
)
@output_option(
    "text",
    "json",
    "yaml",
    "name",
    about="The format of what is printed when the container has ended. name: pod/NAME.",
)
@cluster_options
@backoff_options
@click.pass_context
def wait(
    context: click.Context,
    pod: str,
    namespace: str | None,
    container: str | None,
    timeout: timedelta | None,
    output: str,
    cluster: Cluster,
    backoff: Backoff,
) -> None:
    """Wait until a container has ended, and exit with its exit code.

    If there is a line on standard output, the exit code is the container's. If there is none, the
    exit code is podsettle's own. It is 2 if the pod does not exist, if the pod was deleted before
    the container's exit code was known, if the container had not ended after --timeout, if there
    was still no terminated state after --backoff-total, or after another error.
    """

    async def terminated() -> Termination:
        from webhook.client import PodName, wait_terminated

        async with await cluster.connect() as server:
            name = PodName(namespace or server.namespace, pod)
            seconds = None if timeout is None else timeout.total_seconds()
            return await wait_terminated(server, name, container, backoff, timeout_seconds=seconds)

    with report_errors(backoff, f"the exit code of {pod}", timeout):
        found = asyncio.run(terminated())
    if output in ("json", "yaml"):
        from pydantic.alias_generators import to_camel

        fields = {to_camel(key): value for key, value in dataclasses.asdict(found).items()}
        echo_document(json.dumps({"pod": pod} | fields), output)  # The page promises one line.
    elif output == "name":
        echo(f"pod/{pod}")
    else:
        reason = f" ({found.reason})" if found.reason else ""
        echo(f"{pod}/{found.container}: exit code {found.exit_code}{reason}")
    context.exit(found.exit_code if 0 <= found.exit_code <= _MAX_EXIT_CODE else _MAX_EXIT_CODE)
