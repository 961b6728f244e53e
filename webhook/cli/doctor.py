"""The command `podsettle doctor`, which checks an installation."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from webhook.cli.echo import Progress, Styled, echo, emit
from webhook.cli.open_cluster import cluster_errors
from webhook.cli.options import (
    DURATION,
    NAME,
    Cluster,
    cluster_options,
    namespace_flag,
    output_option,
)

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer
    from webhook.images.lookup import ImageLookup
    from webhook.inspect.doctor.model import DoctorReport

_COLORS = {"FAULT": "red", "warning": "yellow", "ok": "green"}
"""The colours of the labels of lines."""


@click.command()
@namespace_flag(
    "The namespace of the installation. The default is to look for it in all namespaces."
)
@click.option(
    "--in",
    "chosen_namespace",
    metavar="NAMESPACE",
    type=NAME,
    help="The namespace in which a pod is created as a dry run, and whose pods pull the image of "
    "the helper. The default is the first namespace that a policy covers.",
)
@click.option(
    "--wait",
    type=DURATION,
    default="0s",
    help="Repeat the checks for up to this time until there is no fault.",
)
@output_option("text", "json", "yaml", about="The format of the report.")
@cluster_options
@click.pass_context
def doctor(
    context: click.Context,
    namespace: str | None,
    chosen_namespace: str | None,
    wait: timedelta,
    output: str,
    cluster: Cluster,
) -> None:
    """Check an installation, and say where the repair of each fault stands.

    The checks read the cluster with your own rights, and change nothing. The exit code is 1 if
    there is a fault, and 2 if the installation could not be looked at.
    """

    async def check(progress: Progress) -> DoctorReport:
        from webhook.inspect.doctor.run import diagnose, repeat_until_healthy

        async with await cluster.connect() as server:
            return await repeat_until_healthy(
                lambda: diagnose(
                    server,
                    namespace=namespace,
                    chosen_namespace=chosen_namespace,
                    new_image_lookup=_new_image_lookup,
                    flags=cluster.flags,
                    on_progress=progress.show,
                ),
                wait.total_seconds(),
            )

    with cluster_errors(cluster.flags), Progress() as progress:
        report = asyncio.run(check(progress))
    if output == "text":
        for label, text in report.lines():
            echo(Styled(label, _COLORS.get(label.strip())), text)
    else:
        emit(report, output)
    context.exit(2 if report.saw_nothing else 1 if report.faults else 0)


def _new_image_lookup(server: ApiServer) -> ImageLookup:
    from webhook.cluster.pull_secrets import ClusterPullSecrets
    from webhook.images.lookup import ImageLookup

    return ImageLookup(ClusterPullSecrets(server))
