"""podsettle serve: the webhook."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click

from webhook.cli.options import (
    PLACEHOLDER_IMAGE,
    InputError,
    certs_dir_option,
    image_reference,
    load_manifests,
)
from webhook.cluster.in_cluster import in_cluster
from webhook.cluster.source import Source
from webhook.core.decide import Settings
from webhook.tls.files import CertificateDirectory, CertificateError, ServedCertificate


@click.command()
@click.option(
    "--manifests",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="PODSETTLE_MANIFESTS",
    show_envvar=True,
    metavar="DIR",
    help="Files that stand in for a cluster: SettlePolicy, Namespace, RuntimeClass and Node "
    "documents. Without it: the cluster that podsettle runs in, else that of the kubeconfig.",
)
@click.option(
    "--host",
    default=lambda: "0.0.0.0" if in_cluster() else "127.0.0.1",  # noqa: S104
    envvar="PODSETTLE_HOST",
    show_envvar=True,
    show_default="127.0.0.1; in a cluster 0.0.0.0",
    help="The address to listen on.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8443,
    envvar="PODSETTLE_PORT",
    show_envvar=True,
    show_default=True,
    help="The port to listen on.",
)
@certs_dir_option
@click.option(
    "--linger-image",
    envvar="PODSETTLE_LINGER_IMAGE",
    show_envvar=True,
    show_default=f"{PLACEHOLDER_IMAGE} with --manifests, else none",
    callback=image_reference,
    metavar="IMAGE",
    help="The image of the helper, where containers without a shell get it from.",
)
@click.option(
    "--own-namespace",
    envvar="PODSETTLE_NAMESPACE",
    show_envvar=True,
    metavar="NAME",
    help="The namespace that podsettle itself runs in; its pods are never touched.",
)
def serve(
    manifests: Path | None,
    host: str,
    port: int,
    certs_dir: Path,
    linger_image: str | None,
    own_namespace: str | None,
) -> None:
    """Answer admission reviews and previews over TLS."""
    from webhook.server.app import create_app
    from webhook.server.serve import AddressError, listen
    from webhook.server.serve import serve as run

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    source: Source
    if manifests is not None:
        source = load_manifests(manifests)
        # Nothing runs these pods, so an image that nobody can pull does no harm.
        linger_image = linger_image or PLACEHOLDER_IMAGE
        for problem in source.problems:
            click.echo(f"podsettle: {problem}", err=True)
    else:
        source = _connect()
    try:
        certificate = ServedCertificate(CertificateDirectory(certs_dir))
        listener = listen(host, port)
    except (CertificateError, AddressError) as error:
        raise InputError(str(error)) from None
    app = create_app(source, Settings(own_namespace, linger_image), lambda: certificate.expires)
    # A wildcard is no name that a client could check the certificate against.
    name = "localhost" if host in ("0.0.0.0", "::") else host  # noqa: S104
    url = f"https://{f'[{name}]' if ':' in name else name}:{listener.getsockname()[1]}"
    click.echo(_greeting(url, certificate.directory, source, manifests))
    run(app, certificate, listener)


def _connect() -> Source:
    """The cluster, its address and credentials read; the connection is made by the server."""
    # The client takes a quarter of a second to import: only those who need it pay.
    from webhook.cluster.api import ApiServer, Unreachable
    from webhook.cluster.kubernetes import KubernetesSource

    try:
        return KubernetesSource(asyncio.run(ApiServer.connect()))
    except Unreachable as error:
        raise InputError(f"{error}; or give --manifests DIR") from None


def _greeting(
    url: str, certificates: CertificateDirectory, source: Source, manifests: Path | None
) -> str:
    if manifests is None:
        return f"podsettle serves {url} for the cluster at {source.title}"
    curl = f"curl --cacert {certificates.ca}"
    policies = len(source.view.policies)
    count = "1 policy" if policies == 1 else f"{policies} policies"
    review = next(iter(sorted(manifests.glob("reviews/*.json"))), Path("review.json"))
    pod = manifests / "pods" / f"{review.stem}.yaml"
    if not pod.exists():
        pod = Path("pod.yaml")
    return f"""\
podsettle serves {url} on {count} in {source.title}

  page      {url}/
  preview   {curl} --data-binary @{pod} {url}/preview | python3 -m json.tool
  webhook   {curl} -H 'Content-Type: application/json' \\
              --data @{review} {url}/mutate
"""
