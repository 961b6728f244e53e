"""The command `podsettle serve`, which runs the webhook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from webhook.cli.logging import LOG_FORMATS, LOG_LEVELS
from webhook.cli.options import (
    PLACEHOLDER_IMAGE,
    DurationType,
    certs_dir_option,
    check_docs_url,
    check_image_reference,
)
from webhook.cli.serve_composition import ServeOptions, run_server
from webhook.cluster.own_pod import in_cluster
from webhook.core.defects.versions import Version, parse_version


class _Port(click.IntRange):
    """An option type for a port, whose errors say which numbers are allowed."""

    name = "port number from 0 to 65535"

    def __init__(self) -> None:
        super().__init__(0, 65535)


def _check_version(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> Version | None:
    """Return a version, or None for an empty text. Raise click.BadParameter."""
    version = parse_version(value) if value else None
    if value and version is None:
        message = f"{value!r} is not a version such as 0.2.0"
        raise click.BadParameter(message, param=parameter)
    return version


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
    help="The address to listen on. If it is not the loopback address, /preview, /view and "
    "/metrics require a token of the cluster. With --manifests they never require one.",
)
@click.option(
    "--port",
    type=_Port(),
    metavar="PORT",
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
    "--linger-version",
    envvar="PODSETTLE_LINGER_VERSION",
    show_envvar=True,
    callback=_check_version,
    metavar="VERSION",
    help="The version of the helper in that image, such as 0.2.0. Needed if the image's tag is not "
    "its version: podsettle uses what only newer helpers have if it knows that the helper has it.",
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
    "--docs-url",
    envvar="PODSETTLE_DOCS_URL",
    show_envvar=True,
    callback=check_docs_url,
    metavar="URL",
    help="Where you publish docs/why-was-my-pod-changed.md. podsettle writes the URL into the "
    "annotation podsettle.dev/summary of the pods that it changes.",
)
@click.option(
    "--events",
    is_flag=True,
    envvar="PODSETTLE_EVENTS",
    show_envvar=True,
    help="Write an Event on a pod's controller if podsettle could not do what a policy asks for. "
    "Set sideEffects of the webhooks to NoneOnDryRun. Needs --own-namespace.",
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
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    default="text",
    envvar="PODSETTLE_LOG_FORMAT",
    show_envvar=True,
    show_default=True,
    help="The format of the log. json: each line is a JSON object, also the line that names the "
    "address.",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    envvar="PODSETTLE_LOG_LEVEL",
    show_envvar=True,
    show_default=True,
    metavar="LEVEL",
    help="The least severe messages that are logged: debug, info, warning or error. info: a line "
    "for each pod that a policy covers. debug: also a line when the API server asks again about "
    "such a pod.",
)
def serve(**options: Any) -> None:
    """Answer admission reviews and previews over TLS."""
    run_server(ServeOptions(**options))
