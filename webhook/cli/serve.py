"""The command `podsettle serve`, which runs the webhook.

Long because it declares all options of the server and checks how they depend on each other.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

import click

from webhook.cli.bootstrap import build_dev, build_in_cluster, build_offline
from webhook.cli.image_resolver import new_image_resolver
from webhook.cli.logging import set_up_server_logging
from webhook.cli.options import (
    PLACEHOLDER_IMAGE,
    DurationType,
    InputError,
    certs_dir_option,
    check_image_reference,
)
from webhook.cluster.in_cluster import in_cluster
from webhook.cluster.source import Source
from webhook.core.admission.decide import OperatorSettings
from webhook.process_memory import imports_excluded_from_gc
from webhook.tls.authority import Lifetimes
from webhook.tls.dynamic_source import StoredCertificates
from webhook.tls.file_source import CertificateDirectory, CertificateError, FileSource

_WILDCARD_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104


@click.command()
@click.option(
    "--manifests",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="PODSETTLE_MANIFESTS",
    show_envvar=True,
    metavar="DIR",
    help="A directory of files that replaces a cluster: SettlePolicy, Namespace, RuntimeClass and "
    "Node documents. Without it, podsettle uses the cluster in which it runs. Outside a cluster, "
    "it uses the cluster of the kubeconfig.",
)
@click.option(
    "--host",
    default=lambda: "::" if in_cluster() else "127.0.0.1",
    envvar="PODSETTLE_HOST",
    show_envvar=True,
    show_default="127.0.0.1, or :: (all addresses) in a cluster",
    help="The address to listen on. If it is not the loopback address, /preview and /metrics "
    "require a token of the cluster. With --manifests they never require one.",
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
    callback=check_image_reference,
    metavar="IMAGE",
    help="The image of the helper, the program that wraps containers without a shell.",
)
@click.option(
    "--own-namespace",
    envvar="PODSETTLE_NAMESPACE",
    show_envvar=True,
    metavar="NAME",
    help="The namespace in which podsettle runs. Its pods are never changed. With this option, "
    "podsettle writes the status of policies.",
)
@click.option(
    "--tls",
    type=click.Choice(["files", "self-managed"]),
    default="files",
    envvar="PODSETTLE_TLS",
    show_envvar=True,
    show_default=True,
    help="Where the certificate comes from. files: the files in --certs-dir. self-managed: "
    "podsettle keeps a CA in a Secret, and renews and registers it.",
)
@click.option(
    "--tls-secret",
    default="podsettle-tls",
    envvar="PODSETTLE_TLS_SECRET",
    show_envvar=True,
    show_default=True,
    metavar="NAME",
    help="The Secret of --tls self-managed, in podsettle's own namespace. It has to exist.",
)
@click.option(
    "--service",
    default="podsettle",
    envvar="PODSETTLE_SERVICE",
    show_envvar=True,
    show_default=True,
    metavar="NAME",
    help="The Service for which a self-managed certificate is issued.",
)
@click.option(
    "--leaf-life",
    type=DurationType(),
    default="720h",
    envvar="PODSETTLE_LEAF_LIFE",
    show_envvar=True,
    show_default=True,
    help="How long a self-managed certificate is valid. It is renewed after two thirds of that "
    "time.",
)
@click.option(
    "--ca-life",
    type=DurationType(),
    default="8760h",
    envvar="PODSETTLE_CA_LIFE",
    show_envvar=True,
    show_default=True,
    help="How long the self-managed CA is valid: at least four times as long as the certificate. "
    "It is renewed after two thirds of that time.",
)
@click.option(
    "--webhook-configuration",
    envvar="PODSETTLE_WEBHOOK_CONFIGURATION",
    show_envvar=True,
    metavar="NAME",
    help="The MutatingWebhookConfiguration that podsettle keeps up to date. podsettle is ready "
    "only if the caBundle in it verifies podsettle's certificate.",
)
@click.option(
    "--lease",
    default="podsettle",
    envvar="PODSETTLE_LEASE",
    show_envvar=True,
    show_default=True,
    metavar="NAME",
    help="The Lease for leader election, in podsettle's own namespace. Only its holder writes to "
    "the cluster. It has to exist.",
)
@click.option(
    "--client-ca",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="PODSETTLE_CLIENT_CA",
    show_envvar=True,
    metavar="FILE",
    help="A CA bundle. With it, /mutate answers only clients that present a certificate of this "
    "CA. The API server has to be configured to present one.",
)
@click.option(
    "--drain-quiet",
    type=DurationType(),
    default=lambda: "10s" if in_cluster() else "0s",
    envvar="PODSETTLE_DRAIN_QUIET",
    show_envvar=True,
    show_default="0s; in a cluster 10s",
    help="After SIGTERM: exit when no review has arrived for this long.",
)
@click.option(
    "--drain-limit",
    type=DurationType(),
    default="45s",
    envvar="PODSETTLE_DRAIN_LIMIT",
    show_envvar=True,
    show_default=True,
    help="After SIGTERM: exit at the latest after this time. The pod's "
    "terminationGracePeriodSeconds has to be longer.",
)
def serve(
    manifests: Path | None,
    host: str,
    port: int,
    certs_dir: Path,
    linger_image: str | None,
    own_namespace: str | None,
    tls: Literal["files", "self-managed"],
    tls_secret: str,
    service: str,
    leaf_life: timedelta,
    ca_life: timedelta,
    webhook_configuration: str | None,
    lease: str,
    client_ca: Path | None,
    drain_quiet: timedelta,
    drain_limit: timedelta,
) -> None:
    """Answer admission reviews and previews over TLS."""
    with imports_excluded_from_gc():
        from webhook.server.app import create_app
        from webhook.server.client_certs import ClientCAError, request_client_certificate
        from webhook.server.drain import Drain
        from webhook.server.run import AddressError, listen
        from webhook.server.run import serve as run

    set_up_server_logging()
    listens_on_network = not _is_loopback(host)
    cluster_option = "--tls self-managed" if tls == "self-managed" else ""
    if webhook_configuration and not cluster_option:
        cluster_option = "--webhook-configuration"
    if drain_quiet > drain_limit:
        raise InputError("--drain-quiet is longer than --drain-limit, so it would have no effect")
    try:
        if manifests is not None:
            if cluster_option:
                raise InputError(f"{cluster_option} needs a cluster: leave --manifests out")
            components = build_offline(manifests, certs_dir)
            # A server without a cluster changes no real pods, so the helper image need not exist.
            linger_image = linger_image or PLACEHOLDER_IMAGE
            if listens_on_network:
                warning = f"any client of {host}:{port} can use /preview and /metrics"
                click.echo(f"podsettle: warning: {warning} without a token", err=True)
        elif own_namespace is not None:
            certificates = (
                StoredCertificates(service, tls_secret, _lifetimes(leaf_life, ca_life))
                if tls == "self-managed"
                else FileSource(CertificateDirectory(certs_dir))
            )
            components = build_in_cluster(
                own_namespace, lease, webhook_configuration, certificates, listens_on_network
            )
        elif cluster_option:
            raise InputError(f"{cluster_option} needs --own-namespace NAME")
        else:
            components = build_dev(certs_dir, listens_on_network)
        if client_ca is not None:
            request_client_certificate(components.certificates.context, client_ca)
        listener = listen(host, port)
    except (CertificateError, AddressError, ClientCAError) as error:
        raise InputError(str(error)) from None
    drain = Drain(drain_quiet.total_seconds(), drain_limit.total_seconds())
    app = create_app(
        components.source,
        OperatorSettings(own_namespace, linger_image),
        certificate_expires=lambda: components.certificates.expires,
        checks=components.checks,
        running=components.running,
        drain=drain,
        authorizer=components.authorizer,
        client_certificates=client_ca is not None,
        pull_secrets=components.pull_secrets,
        new_image_resolver=new_image_resolver,
    )
    if manifests is not None:
        click.echo(_banner(host, listener, certs_dir, components.source, manifests))
    else:
        name = f"{service}.{own_namespace}.svc" if tls == "self-managed" else None
        click.echo(_listening_line(host, listener, components.source, name))
    run(app, components.certificates.context, listener, drain)


def _lifetimes(leaf: timedelta, ca: timedelta) -> Lifetimes:
    try:
        return Lifetimes(leaf, ca)
    except ValueError as error:
        raise InputError(f"--leaf-life and --ca-life: {error}") from None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _url(host: str, port: int) -> str:
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


def _listening_line(host: str, listener: socket.socket, source: Source, name: str | None) -> str:
    """Return the first line of output. `name` is the DNS name of the Service, or None."""
    # On a machine without IPv6, the listener uses 0.0.0.0 instead of `::`. Show the address in use.
    address, port = listener.getsockname()[:2]
    where = (
        f"{_url(address, port)} (all addresses)"
        if host in _WILDCARD_ADDRESSES
        else _url(host, port)
    )
    service = f" as https://{name}" if name else ""
    return f"podsettle serves {where}{service} for the cluster at {source.title}"


def _banner(
    host: str, listener: socket.socket, certs_dir: Path, source: Source, manifests: Path
) -> str:
    """Return the text at the start of a server without a cluster, with commands to try it."""
    # The certificate does not contain a wildcard address, so clients could not verify its URL.
    url = _url("localhost" if host in _WILDCARD_ADDRESSES else host, listener.getsockname()[1])
    curl = f"curl --cacert {CertificateDirectory(certs_dir).ca}"
    policies = len(source.view.policies)
    count = "1 policy" if policies == 1 else f"{policies} policies"
    if source.problems:
        problems = "1 problem" if len(source.problems) == 1 else f"{len(source.problems)} problems"
        count += f" (objects with the {problems} above are left out)"
    review = next(iter(sorted(manifests.glob("reviews/*.json"))), Path("review.json"))
    pod = manifests / "pods" / f"{review.stem}.yaml"
    if not pod.exists():
        pod = Path("pod.yaml")
    return f"""\
podsettle serves {url} on {count} in {source.title}

  page      {url}/
  preview   {curl} --data-binary @{pod} {url}/preview \\
              | python3 -m json.tool | grep -E '"(reason|remedy|container|message)":'
  webhook   {curl} -H 'Content-Type: application/json' \\
              --data @{review} {url}/mutate
"""
