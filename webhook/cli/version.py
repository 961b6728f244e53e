"""The command `podsettle version`, for this program and for the installation in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from webhook import __version__
from webhook.cli.echo import echo, emit
from webhook.cli.open_cluster import OPTIONAL_SECONDS, connect
from webhook.cli.options import Cluster, InputError, cluster_options, output_option

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer


@click.command()
@click.option("--client", is_flag=True, help="Print only the version of this program.")
@cluster_options
@output_option("text", "json", "yaml", about="The format of the output.")
def version(client: bool, cluster: Cluster, output: str) -> None:
    """Print the version of this program, and the image of the installation in the cluster.

    The image is that of podsettle's Deployment. That there is no cluster, or no installation in it,
    does not change the exit code.

    Exit codes: 0 success; 2 the cluster that an option chooses cannot be read.
    """
    server = {} if client else _find_server(cluster)
    if output != "text":
        emit({"client": __version__} | ({"server": server} if server else {}), output)
        return
    echo(f"client: {__version__}")
    if server:
        found = f"{server['image']} (Deployment {server['deployment']})"
        echo(f"server: {found if server['image'] else 'not known: ' + server['why']}")


def _find_server(cluster: Cluster) -> dict[str, Any]:
    """Return the image, the Deployment as NAMESPACE/NAME, and why they are not known."""
    try:
        with connect(cluster, None if cluster.is_chosen else OPTIONAL_SECONDS) as connection:
            return connection.run(_read_server(connection.server))
    except InputError as error:
        if cluster.is_chosen:
            raise
        return {"image": None, "deployment": None, "why": str(error)}


async def _read_server(server: ApiServer) -> dict[str, Any]:
    from webhook.cluster.reader import ClusterReader
    from webhook.inspect.installation import Absent, find_installation

    found = await find_installation(ClusterReader(server))
    if isinstance(found, Absent):
        needs = "".join(f"; needs: {right}" for right in found.rights)
        return {"image": None, "deployment": None, "why": f"{found.why}{needs}"}
    container = found.deployment["spec"]["template"]["spec"]["containers"][0]
    name = f"{found.namespace}/{found.name}"
    return {"image": str(container["image"]), "deployment": name, "why": ""}
