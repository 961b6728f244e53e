"""The command `podsettle doctor`, which checks an installation."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from webhook.cli.completions import complete_namespaces
from webhook.cli.echo import Styled, echo, echo_document
from webhook.cli.open_cluster import cluster_errors
from webhook.cli.options import (
    Cluster,
    DurationType,
    check_object_name,
    cluster_options,
    verbose_option,
)
from webhook.inspect.cluster_flags import ClusterFlags

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer
    from webhook.core.images import ImageResolver
    from webhook.inspect.doctor.model import DoctorReport

_COLORS = {"FAULT": "red", "warning": "yellow", "ok": "green"}
"""The colours of the labels of lines."""


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
@cluster_options
@verbose_option
@click.pass_context
def doctor(
    context: click.Context,
    namespace: str | None,
    chosen_namespace: str | None,
    wait: timedelta,
    output: str,
    cluster: Cluster,
) -> None:
    """Check an installation, and say what to do about each fault.

    The checks read the cluster with your own rights, and change nothing. The exit code is 1 if
    there is a fault, and 2 if the installation could not be looked at.
    """

    async def check() -> DoctorReport:
        async with await cluster.connect() as server:
            return await _diagnose(
                server, namespace, chosen_namespace, wait.total_seconds(), cluster.flags
            )

    with cluster_errors(cluster.flags):
        report = asyncio.run(check())
    _print(report, output)
    context.exit(2 if report.saw_nothing else 1 if report.faults else 0)


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
