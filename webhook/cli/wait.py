"""The command `podsettle wait`, which waits for the exit code of a container."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING

import click

from webhook.cli.backoff import backoff_options, report_errors
from webhook.cli.echo import echo, echo_json
from webhook.cli.options import (
    Cluster,
    cluster_options,
    container_option,
    namespace_option,
    pod_argument,
)

if TYPE_CHECKING:
    from webhook.client import Backoff, Termination

# The largest exit code of a Linux process. Windows containers can have larger codes. Without this
# limit, podsettle would exit with 0 for 256.
_MAX_EXIT_CODE = 255


@click.command()
@pod_argument
@namespace_option
@container_option
@click.option(
    "--for",
    "condition",
    type=click.Choice(["terminated"]),
    default="terminated",
    show_default=True,
    help="The event to wait for.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The format of the line that is printed when the container has ended.",
)
@cluster_options
@backoff_options
@click.pass_context
def wait(
    context: click.Context,
    pod: str,
    namespace: str | None,
    container: str | None,
    condition: str,  # noqa: ARG001 (the option has only one value)
    output: str,
    cluster: Cluster,
    backoff: Backoff,
) -> None:
    """Wait until a container has ended, and exit with its exit code.

    If there is a line on standard output, the exit code is the container's. If there is none, the
    exit code is podsettle's own. It is 2 if the pod does not exist, if the pod was deleted before
    the container's exit code was known, if there was still no terminated state after
    --backoff-total, or after another error.
    """
    with report_errors(backoff, f"the exit code of {pod}"):
        termination = asyncio.run(_wait_terminated(pod, namespace, container, cluster, backoff))
    if output == "json":
        echo_json(_as_json(pod, termination))
    else:
        echo(_as_text(pod, termination))
    context.exit(
        termination.exit_code if 0 <= termination.exit_code <= _MAX_EXIT_CODE else _MAX_EXIT_CODE
    )


async def _wait_terminated(
    pod: str, namespace: str | None, container: str | None, cluster: Cluster, backoff: Backoff
) -> Termination:
    from webhook.client import ApiServer, PodName, wait_terminated

    async with await ApiServer.connect(**cluster) as server:
        name = PodName(namespace or server.namespace, pod)
        return await wait_terminated(server, name, container, backoff)


def _as_text(pod: str, termination: Termination) -> str:
    reason = f" ({termination.reason})" if termination.reason else ""
    return f"{pod}/{termination.container}: exit code {termination.exit_code}{reason}"


def _as_json(pod: str, termination: Termination) -> str:
    fields = dataclasses.asdict(termination)
    return json.dumps({"pod": pod} | {_to_camel_case(key): value for key, value in fields.items()})


def _to_camel_case(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(map(str.capitalize, rest))
