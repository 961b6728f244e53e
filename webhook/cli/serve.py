"""podsettle serve: the webhook."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from webhook.cli.options import (
    InputError,
    certs_dir_option,
    linger_image_option,
    load_manifests,
    manifests_option,
)
from webhook.core.decide import Settings
from webhook.tls.files import CertificateDirectory, CertificateError


@click.command()
@manifests_option
@click.option(
    "--host",
    default="127.0.0.1",
    envvar="PODSETTLE_HOST",
    show_envvar=True,
    show_default=True,
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
@linger_image_option
@click.option(
    "--own-namespace",
    envvar="PODSETTLE_NAMESPACE",
    show_envvar=True,
    metavar="NAME",
    help="The namespace that podsettle itself runs in; its pods are never touched.",
)
def serve(
    manifests: Path,
    host: str,
    port: int,
    certs_dir: Path,
    linger_image: str,
    own_namespace: str | None,
) -> None:
    """Answer admission reviews and previews over TLS."""
    from webhook.server.app import create_app
    from webhook.server.serve import serve as run

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    certificates = CertificateDirectory(certs_dir)
    try:
        certificates.ssl_context()
        expires = certificates.load().not_valid_after_utc
    except CertificateError as error:
        raise InputError(str(error)) from None
    source = load_manifests(manifests)
    app = create_app(source, Settings(own_namespace, linger_image), expires)
    click.echo(_greeting(host, port, certificates, manifests, len(source.view.policies)))
    run(app, certificates, host, port)


def _greeting(
    host: str, port: int, certificates: CertificateDirectory, manifests: Path, policies: int
) -> str:
    url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    curl = f"curl --cacert {certificates.ca}"
    count = "1 policy" if policies == 1 else f"{policies} policies"
    review = next(iter(sorted(manifests.glob("reviews/*.json"))), Path("review.json"))
    pod = Path("pod.yaml")
    if (example := manifests / "pods" / f"{review.stem}.yaml").exists():
        pod = example
    return f"""\
podsettle serves {url} on {count} in {manifests}

  page      {url}/
  preview   {curl} --data-binary @{pod} {url}/preview
  webhook   {curl} -H 'Content-Type: application/json' \\
              --data @{review} {url}/mutate
"""
