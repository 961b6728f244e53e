"""The command `podsettle version`, for this program and for the installation in a cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import click

from webhook import __version__
from webhook.cli.echo import echo, echo_document
from webhook.cli.open_cluster import OPTIONAL_SECONDS, connect
from webhook.cli.options import Cluster, InputError, cluster_options, verbose_option

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer


class _Server(NamedTuple):
    """The installation in the cluster, as far as it can be read."""

    image: str | None
    deployment: str | None
    """Namespace and name."""
    why: str
    """Why the image is not known. Empty if it is known."""


@click.command()
@click.option("--client", is_flag=True, help="Print only the version of this program.")
@cluster_options
@verbose_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="The format of the output.",
)
def version(client: bool, cluster: Cluster, output: str) -> None:
    """Print the version of this program, and the image of the installation in the cluster.

    The image is that of podsettle's Deployment. That there is no cluster, or no installation in it,
    does not change the exit code.

    Exit codes: 0 success; 2 the cluster that an option chooses cannot be read.
    """
    server = None if client else _find_server(cluster)
    if output != "text":
        answer: dict[str, object] = {"client": __version__}
        if server is not None:
            answer["server"] = server._asdict()
        echo_document(json.dumps(answer, indent=2), output)
        return
    echo(f"client: {__version__}")
    if server is not None:
        found = f"{server.image} (Deployment {server.deployment})"
        text = f"not known: {server.why}" if server.image is None else found
        echo(f"server: {text}")


def _find_server(cluster: Cluster) -> _Server:
    chosen = cluster.is_chosen
    try:
        with connect(cluster, None if chosen else OPTIONAL_SECONDS) as connection:
            return connection.run(_read_server(connection.server))
    except InputError as error:
        if chosen:
            raise
        return _Server(None, None, str(error))


async def _read_server(server: ApiServer) -> _Server:
    from webhook.cluster.reader import ClusterReader
    from webhook.inspect.installation import Absent, find_installation

    found = await find_installation(ClusterReader(server))
    if isinstance(found, Absent):
        needs = "".join(f"; needs: {right}" for right in found.rights)
        return _Server(None, None, f"{found.why}{needs}")
    container = found.deployment["spec"]["template"]["spec"]["containers"][0]
    return _Server(str(container["image"]), f"{found.namespace}/{found.name}", "")
