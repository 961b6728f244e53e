"""The command `podsettle serve`, which runs the webhook: from its options to a running server.

A server reads manifests, reads a cluster without changing it (for development), or is one replica
in a cluster. `ClusterParts` holds what differs between the three.
"""

# ruff: noqa: RUF009 (`_option` returns a field, as dataclasses.field does)

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from webhook.cli.echo import echo_message, echo_text
from webhook.cli.logging import LOG_FORMATS, LOG_LEVELS, LogFormat, LogLevel, set_up_server_logging
from webhook.cli.options import CERTS_DIR, DURATION, IMAGE, PLACEHOLDER_IMAGE, InputError, Parsed
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.cluster.manifest_loader import ManifestsError
from webhook.cluster.own_pod import in_cluster
from webhook.cluster.source import Check, Source
from webhook.core.admission.decider import OperatorSettings
from webhook.core.defects.versions import Version, parse_version
from webhook.core.docs_url import docs_url_problem
from webhook.core.printable import count_of
from webhook.process_memory import imports_excluded_from_gc
from webhook.tls.authority import Lifetimes
from webhook.tls.certificate_directory import CertificateDirectory, CertificateError
from webhook.tls.dynamic_source import StoredCertificates
from webhook.tls.file_source import FileSource
from webhook.tls.source import CertificateSource

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer
    from webhook.server.components import ClusterParts

log = logging.getLogger(__name__)
_WILDCARD_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104


class _Port(click.IntRange):
    """An option type for a port, whose errors say which numbers are allowed."""

    name = "port number from 0 to 65535"

    def __init__(self) -> None:
        super().__init__(0, 65535)


def _option(**attributes: Any) -> Any:
    """Return a field whose option has these attributes."""
    return field(metadata=attributes)


def _parse_version(text: str) -> Version | None:
    version = parse_version(text) if text else None
    if text and version is None:
        raise ValueError(f"{text!r} is not a version such as 0.2.0")
    return version


def _parse_docs_url(text: str) -> str | None:
    if text and (problem := docs_url_problem(text)):
        raise ValueError(problem)
    return text or None


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOptions:
    """The options, which `podsettle serve --help` describes.

    The flag of an option and its environment variable have the name of the field.
    """

    manifests: Path | None = _option(
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="A directory of files that replaces a cluster: SettlePolicy, Namespace, RuntimeClass "
        "and Node documents. Without it, podsettle uses the cluster in which it runs. Outside a "
        "cluster, it uses the cluster of the kubeconfig.",
    )
    host: str = _option(
        default=lambda: "::" if in_cluster() else "127.0.0.1",
        show_default="127.0.0.1, or :: (all addresses) in a cluster",
        help="The address to listen on. If it is not the loopback address, /preview, /view and "
        "/metrics require a token of the cluster. With --manifests they never require one.",
    )
    port: int = _option(
        type=_Port(),
        metavar="PORT",
        default=8443,
        help="The port for admission reviews and probes.",
    )
    web_port: int = _option(
        type=_Port(),
        metavar="PORT",
        default=9443,
        help="The port for the page, previews and metrics.",
    )
    certs_dir: Path = _option(**CERTS_DIR)
    linger_image: str | None = _option(
        show_default=f"{PLACEHOLDER_IMAGE} with --manifests, else none",
        type=IMAGE,
        metavar="IMAGE",
        help="The image of the helper, the program that wraps containers without a shell.",
    )
    linger_version: Version | None = _option(
        type=Parsed("version", _parse_version),
        metavar="VERSION",
        help="The version of the helper in that image, such as 0.2.0. Needed if the image's tag "
        "is not its version: podsettle uses what only newer helpers have if it knows that the "
        "helper has it.",
    )
    own_namespace: str | None = _option(
        envvar="PODSETTLE_NAMESPACE",
        metavar="NAME",
        help="The namespace in which podsettle runs. Its pods are never changed. With this "
        "option, podsettle writes the status of policies.",
    )
    docs_url: str | None = _option(
        type=Parsed("url", _parse_docs_url),
        metavar="URL",
        help="Where you publish docs/reasons.md. podsettle writes the URL into the "
        "annotation podsettle.dev/summary of the pods that it changes.",
    )
    tls: Literal["files", "self-managed"] = _option(
        type=click.Choice(["files", "self-managed"]),
        default="files",
        help="Where the certificate comes from. files: the files in --certs-dir. self-managed: "
        "podsettle keeps a CA in a Secret, and renews and registers it.",
    )
    tls_secret: str = _option(
        default="podsettle-tls",
        metavar="NAME",
        help="The Secret of --tls self-managed, in podsettle's own namespace. It has to exist.",
    )
    service: str = _option(
        default="podsettle",
        metavar="NAME",
        help="The Service for which a self-managed certificate is issued.",
    )
    leaf_life: timedelta = _option(
        type=DURATION,
        default="720h",
        help="How long a self-managed certificate is valid. It is renewed after two thirds of "
        "that time.",
    )
    ca_life: timedelta = _option(
        type=DURATION,
        default="8760h",
        help="How long the self-managed CA is valid: at least four times as long as the "
        "certificate. It is renewed after two thirds of that time.",
    )
    webhook_configuration: str | None = _option(
        metavar="NAME",
        help="The MutatingWebhookConfiguration that podsettle keeps up to date. podsettle is "
        "ready only if the caBundle in it verifies podsettle's certificate.",
    )
    lease: str = _option(
        default="podsettle",
        metavar="NAME",
        help="The Lease for leader election, in podsettle's own namespace. Only its holder writes "
        "to the cluster. Created if missing.",
    )
    client_ca: Path | None = _option(
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A CA bundle. With it, /mutate answers only clients that present a certificate of "
        "this CA. The API server has to be configured to present one.",
    )
    drain_quiet: timedelta = _option(
        type=DURATION,
        default=lambda: "10s" if in_cluster() else "0s",
        show_default="0s; in a cluster 10s",
        help="After SIGTERM: exit when no review has arrived for this long.",
    )
    drain_limit: timedelta = _option(
        type=DURATION,
        default="45s",
        help="After SIGTERM: exit at the latest after this time. The pod's "
        "terminationGracePeriodSeconds has to be longer.",
    )
    log_format: LogFormat = _option(
        type=click.Choice(LOG_FORMATS),
        default="text",
        help="The format of the log. json: each line is a JSON object, also the line that names "
        "the address.",
    )
    log_level: LogLevel = _option(
        type=click.Choice(LOG_LEVELS),
        default="info",
        metavar="LEVEL",
        help="The least severe messages that are logged: debug, info, warning or error. info: a "
        "line for each pod that a policy covers. debug: also a line when the API server asks "
        "again about such a pod.",
    )

    @property
    def listens_on_network(self) -> bool:
        """Whether other machines may reach the server."""
        try:
            return not ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    @property
    def cluster_option(self) -> str:
        """The first given option that needs a cluster, or an empty text."""
        if self.tls == "self-managed":
            return "--tls self-managed"
        return "--webhook-configuration" if self.webhook_configuration else ""

    @property
    def service_name(self) -> str | None:
        """The DNS name of the Service, if a certificate is issued for it."""
        if self.tls != "self-managed" or self.own_namespace is None:
            return None
        return f"{self.service}.{self.own_namespace}.svc"


def _parameter(option: Field[Any]) -> click.Parameter:
    attributes = {"envvar": f"PODSETTLE_{option.name.upper()}", **option.metadata}
    return click.Option([f"--{option.name.replace('_', '-')}"], **attributes, show_envvar=True)


def _run(options: ServeOptions) -> None:
    """Build a server, and serve until the process must exit. Raises InputError."""
    with imports_excluded_from_gc():
        from webhook.server.components import Components
        from webhook.server.drain import Drain
        from webhook.server.reviews.client_certs import ClientCAError, request_client_certificate
        from webhook.server.run import AddressError, listen, serve

    set_up_server_logging(options.log_format, options.log_level)
    if options.drain_quiet > options.drain_limit:
        raise InputError("--drain-quiet is longer than --drain-limit, so it would have no effect")
    if options.port == options.web_port != 0:
        raise InputError(f"--port and --web-port are both {options.port}, and have to differ")
    if not options.host:
        raise InputError("--host is empty: give an address, such as 127.0.0.1, or :: for all")
    try:
        parts = _build_cluster_parts(options)
        context = parts.certificates.context
        if options.client_ca is not None:
            request_client_certificate(context, options.client_ca)
        listener = listen(options.host, options.port, "--port 10443, or make run PORT=10443")
        web_listener = listen(
            options.host, options.web_port, "--web-port 11443, or make run WEB_PORT=11443"
        )
    except (CertificateError, AddressError) as error:
        raise InputError(str(error)) from None
    except ClientCAError as error:
        raise InputError(f"--client-ca: {error}") from None
    linger_image = options.linger_image or None
    message = _listening_line(options, listener, web_listener, parts.source)
    if options.manifests is not None:
        # A server without a cluster changes no real pods, so the helper image need not exist.
        linger_image = linger_image or PLACEHOLDER_IMAGE
        if options.listens_on_network:
            clients = f"any client of {_url(options.host, web_listener.getsockname()[1])}"
            warning = f"{clients} can use /preview, /view and /metrics without a token"
            _warn(options, f"warning: {warning}")
        message = _banner(options, listener, web_listener, parts.source, options.manifests)
    components = Components(
        parts,
        OperatorSettings(
            options.own_namespace, linger_image, options.docs_url, options.linger_version
        ),
        drain=Drain(options.drain_quiet.total_seconds(), options.drain_limit.total_seconds()),
        needs_certificate=options.client_ca is not None,
    )
    if options.log_format == "json":
        log.info("%s", message.partition("\n")[0])
    else:
        echo_text(f"{message}\n")
    serve(components, context, listener, web_listener)


def _listening_line(
    options: ServeOptions, listener: socket, web_listener: socket, source: Source
) -> str:
    """Return the message of a server for a cluster."""
    # On a machine without IPv6, the listener uses 0.0.0.0 instead of `::`. Show the address in use.
    address, port = listener.getsockname()[:2]
    all_addresses = options.host in _WILDCARD_ADDRESSES
    where = f"{_url(address, port)} (all addresses)" if all_addresses else _url(options.host, port)
    service = f" as https://{options.service_name}" if options.service_name else ""
    web = f"page, previews and metrics on port {web_listener.getsockname()[1]}"
    return f"podsettle serves {where}{service} for the cluster at {source.title}; {web}"


def _banner(
    options: ServeOptions,
    listener: socket,
    web_listener: socket,
    source: Source,
    manifests: Path,
) -> str:
    """Return the message of a server without a cluster, with commands to try it."""
    # The certificate does not contain a wildcard address, so clients could not verify its URL.
    host = "localhost" if options.host in _WILDCARD_ADDRESSES else options.host
    url, web_url = (_url(host, each.getsockname()[1]) for each in (listener, web_listener))
    curl = f"curl -sS --cacert {CertificateDirectory(options.certs_dir).ca}"
    certificate = " --cert FILE --key FILE" if options.client_ca is not None else ""
    policies = len(source.view.policies)
    count = "1 policy" if policies == 1 else f"{policies} policies"
    if source.problems:
        problems = count_of(len(source.problems), "problem")
        count += f" (objects with the {problems} above are left out)"
    review = next(iter(sorted(manifests.glob("reviews/*.json"))), Path("review.json"))
    pod = manifests / "pods" / f"{review.stem}.yaml"
    if not os.path.exists(pod):
        pod = Path("pod.yaml")
    return f"""\
podsettle serves {url} on {count} in {source.title}

  page      {web_url}/
  preview   {curl} --data-binary @{pod} {web_url}/preview \\
              | python3 -m json.tool | sed -nE '/"(detail|summary)":/p; /"outcomes":/,/^ *\\]/p'
  webhook   {curl}{certificate} -H 'Content-Type: application/json' \\
              --data @{review} {url}/mutate
"""


def _url(host: str, port: int) -> str:
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


def _build_cluster_parts(options: ServeOptions) -> ClusterParts:
    """Build the components that the options demand. Raises InputError or CertificateError."""
    if options.manifests is not None:
        if options.cluster_option:
            raise InputError(f"{options.cluster_option} needs a cluster: leave --manifests out")
        return _build_offline(options, options.manifests)
    if options.cluster_option and options.own_namespace is None:
        raise InputError(f"{options.cluster_option} needs --own-namespace NAME")
    return _build_for_cluster(options)


def _build_offline(options: ServeOptions, manifests: Path) -> ClusterParts:
    """Build the components of a server that reads files instead of a cluster."""
    source = ManifestsSource(manifests)
    try:
        source.refresh()
    except ManifestsError as error:
        raise InputError(f"--manifests: {error}") from None
    for problem in source.problems:
        _warn(options, str(problem))
    return _parts_of(source, FileSource(CertificateDirectory(options.certs_dir)))


def _build_for_cluster(options: ServeOptions) -> ClusterParts:
    """Build the components of one replica in a cluster.

    Without its namespace, they are those of a development server, which does not change the
    cluster.
    """
    # Imported here, because the import takes a third of the start and few commands need it.
    with imports_excluded_from_gc():
        from webhook.cluster.client import ApiServer
        from webhook.cluster.errors import Unreachable
        from webhook.cluster.kube_source import KubernetesSource
        from webhook.cluster.pull_secrets import ClusterPullSecrets
        from webhook.cluster.replica import Controller
        from webhook.cluster.token_review import ClusterAuthorizer
        from webhook.server.components import ClusterParts

    certificates: FileSource | StoredCertificates
    if options.tls == "self-managed":
        try:
            lifetimes = Lifetimes(options.leaf_life, options.ca_life)
        except ValueError as error:
            raise InputError(f"--leaf-life and --ca-life: {error}") from None
        certificates = StoredCertificates(options.service, options.tls_secret, lifetimes)
    else:
        certificates = FileSource(CertificateDirectory(options.certs_dir))
    try:
        server = asyncio.run(ApiServer.connect(in_cluster_first=True))  # It does not connect yet.
    except Unreachable as error:
        raise InputError(f"{error}; to run without a cluster, give --manifests DIR") from None
    if options.own_namespace is None:
        # Self-managed certificates need the namespace.
        parts = _parts_of(KubernetesSource(server), cast("FileSource", certificates), server)
    else:
        replica = Controller(
            server,
            options.own_namespace,
            options.lease,
            options.webhook_configuration,
            certificates,
        )
        parts = ClusterParts(replica.source, replica.certificates, replica.checks, replica.running)
    return parts._replace(
        authorizer=ClusterAuthorizer(server) if options.listens_on_network else None,
        pull_secrets=ClusterPullSecrets(server),
    )


def _parts_of(
    source: Source, certificates: CertificateSource, server: ApiServer | None = None
) -> ClusterParts:
    """Return the components of a server that writes nothing. `server` is closed when it ends."""
    from webhook.server.components import ClusterParts

    def checks() -> Iterable[Check]:
        yield from source.checks()
        yield Check("certificate", certificates.ready, certificates.problem)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if server is not None:
                await stack.enter_async_context(server)
            await stack.enter_async_context(source.running())
            await stack.enter_async_context(certificates.running())
            yield

    return ClusterParts(source, certificates, checks, running)


def _warn(options: ServeOptions, message: str) -> None:
    """Print a message to standard error, or log it if all lines have to be JSON."""
    if options.log_format == "json":
        log.warning("%s", message.removeprefix("warning: "))
    else:
        echo_message(message)


def _serve(**options: Any) -> None:
    """Answer admission reviews and previews over TLS."""
    _run(ServeOptions(**options))


serve = click.Command(
    "serve", None, _serve, list(map(_parameter, fields(ServeOptions))), _serve.__doc__
)
