"""The command `podsettle doctor`, which checks an installation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from webhook.cli.completions import complete_namespaces
from webhook.cli.echo import Styled, echo, echo_document
from webhook.cli.open_cluster import cluster_errors
from webhook.cli.options import (
    Cluster,
    DurationType,
    InputError,
    check_object_name,
    cluster_options,
    verbose_option,
)
from webhook.inspect.cluster_flags import ClusterFlags

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer
    from webhook.core.images import ImageResolver
    from webhook.inspect.doctor.model import DoctorReport

T = TypeVar("T")

_COLORS = {"FAULT": "red", "warning": "yellow", "ok": "green"}
"""The colours of the labels of lines."""


class _KillSwitchTarget(NamedTuple):
    """The webhook configuration that the kill switch deletes."""

    namespace: str | None
    configuration: str | None
    flags: ClusterFlags


@click.command()
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    callback=check_object_name,
    shell_complete=complete_namespaces,
    help="The namespace of the installation. The default is to look for it in all namespaces.",
)
@click.option(
    "--in",
    "chosen_namespace",
    metavar="NAMESPACE",
    callback=check_object_name,
    shell_complete=complete_namespaces,
    help="The namespace in which a pod is created as a dry run, and whose pods pull the image of "
    "the helper. The default is the first namespace that a policy covers.",
)
@click.option(
    "--wait",
    type=DurationType(),
    default="0s",
    show_default=True,
    help="Repeat the checks for up to this time until there is no fault.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="The format of the report.",
)
@click.option(
    "--kill-switch",
    is_flag=True,
    help="Instead of the checks, print the commands that take podsettle out of the way of new "
    "pods, and the way back.",
)
@click.option("--yes", is_flag=True, help="With --kill-switch: run the commands.")
@click.option(
    "--suspended",
    is_flag=True,
    help="With --yes: the tools that could create the webhook configuration again are suspended.",
)
@click.option(
    "--configuration",
    metavar="NAME",
    callback=check_object_name,
    help="With --kill-switch: the MutatingWebhookConfiguration. Needed only if there are several.",
)
@cluster_options
@verbose_option
@click.pass_context
def doctor(
    context: click.Context,
    namespace: str | None,
    chosen_namespace: str | None,
    wait: timedelta,
    output: str,
    kill_switch: bool,
    yes: bool,
    suspended: bool,
    configuration: str | None,
    cluster: Cluster,
) -> None:
    """Check an installation, and say what to do about each fault.

    The checks read the cluster with your own rights, and change nothing. The exit code is 1 if
    there is a fault, and 2 if the installation could not be looked at.
    """
    if yes and not kill_switch:
        raise click.UsageError("--yes has no effect without --kill-switch")
    if suspended and not yes:
        raise click.UsageError("--suspended has no effect without --yes")
    if configuration and not kill_switch:
        raise click.UsageError("--configuration has no effect without --kill-switch")
    flags = cluster.flags
    if kill_switch:
        if chosen_namespace or wait or output != "text":
            raise click.UsageError("--in, --wait and -o have no effect with --kill-switch")
        if configuration and namespace:
            raise click.UsageError("give -n or --configuration, not both")
        choice = _KillSwitchTarget(namespace, configuration, flags)
        _run(cluster, lambda server: _switch_off(server, choice, yes, suspended))
        return
    report = _run(
        cluster,
        lambda server: _diagnose(server, namespace, chosen_namespace, wait.total_seconds(), flags),
    )
    _print(report, output)
    context.exit(2 if report.saw_nothing else 1 if report.faults else 0)


def _run(cluster: Cluster, use: Callable[[ApiServer], Awaitable[T]]) -> T:
    """Return the result of a function that uses the API server. Raises InputError."""

    async def connect_and_use() -> T:
        async with await cluster.connect() as server:
            return await use(server)

    with cluster_errors(cluster.flags):
        return asyncio.run(connect_and_use())


async def _diagnose(
    server: ApiServer,
    namespace: str | None,
    chosen_namespace: str | None,
    seconds: float,
    flags: ClusterFlags,
) -> DoctorReport:
    from webhook.inspect.doctor.run import diagnose, repeat_until_healthy

    return await repeat_until_healthy(
        lambda: diagnose(
            server,
            namespace=namespace,
            chosen_namespace=chosen_namespace,
            new_image_resolver=_new_image_resolver,
            flags=flags,
        ),
        seconds,
    )


def _new_image_resolver(server: ApiServer) -> ImageResolver:
    from webhook.cluster.pull_secrets import ClusterPullSecrets
    from webhook.images.lookup import ImageLookup

    return ImageLookup(ClusterPullSecrets(server))


def _print(report: DoctorReport, output: str) -> None:
    import msgspec

    from webhook.inspect.doctor.text import report_lines

    if output != "text":
        echo_document(msgspec.json.format(msgspec.json.encode(report)).decode(), output)
        return
    for label, text in report_lines(report):
        echo(Styled(label, _COLORS.get(label.strip())), text)


async def _switch_off(
    server: ApiServer, choice: _KillSwitchTarget, yes: bool, suspended: bool
) -> None:
    """Print the commands of the kill switch, or run them. Raises InputError."""
    from webhook.inspect.doctor.deleted_configuration import KillSwitchError, find_switch
    from webhook.inspect.doctor.kill_switch import instructions, use

    try:
        switch = await find_switch(server, *choice)
        lines = (
            await use(switch, server, Path.cwd(), are_suspended=suspended)
            if yes
            else instructions(switch)
        )
    except KillSwitchError as error:
        raise InputError(f"kill switch: {error}") from None
    for line in "\n".join(lines).split("\n"):
        echo(line)
