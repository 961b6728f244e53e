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
    Cluster,
    RequestTimeoutType,
    cluster_options,
    container_option,
    namespace_option,
    pod_argument,
    verbose_option,
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
    "--timeout",
    type=RequestTimeoutType(),
    metavar="DURATION",
    show_default="no limit, because a build takes as long as it takes; kubectl wait has 30s",
    help="How long to wait. 0 means to look at the pod once.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml", "name"]),
    default="text",
    show_default=True,
    help="The format of what is printed when the container has ended. name: pod/NAME.",
)
@cluster_options
@verbose_option
@backoff_options
@click.pass_context
def wait(
    context: click.Context,
    pod: str,
    namespace: str | None,
    container: str | None,
    condition: str,  # noqa: ARG001 (the option has only one value)
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
    with report_errors(backoff, f"the exit code of {pod}", timeout):
        termination = asyncio.run(
            _wait_terminated(pod, namespace, container, cluster, backoff, timeout)
        )
    if output in ("json", "yaml"):
        echo_document(_as_json(pod, termination), output)
    elif output == "name":
        echo(f"pod/{pod}")
    else:
        echo(_as_text(pod, termination))
    context.exit(
        termination.exit_code if 0 <= termination.exit_code <= _MAX_EXIT_CODE else _MAX_EXIT_CODE
    )


async def _wait_terminated(
    pod: str,
    namespace: str | None,
    container: str | None,
    cluster: Cluster,
    backoff: Backoff,
    timeout: timedelta | None,  # noqa: ASYNC109 (the limit of the command)
) -> Termination:
    from webhook.client import PodName, wait_terminated

    async with await cluster.connect() as server:
        name = PodName(namespace or server.namespace, pod)
        seconds = None if timeout is None else timeout.total_seconds()
        return await wait_terminated(server, name, container, backoff, timeout_seconds=seconds)


def _as_text(pod: str, termination: Termination) -> str:
    reason = f" ({termination.reason})" if termination.reason else ""
    return f"{pod}/{termination.container}: exit code {termination.exit_code}{reason}"


def _as_json(pod: str, termination: Termination) -> str:
    fields = dataclasses.asdict(termination)
    return json.dumps({"pod": pod} | {_to_camel_case(key): value for key, value in fields.items()})


def _to_camel_case(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(map(str.capitalize, rest))
