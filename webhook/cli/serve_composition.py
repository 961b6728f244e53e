"""Composition of `podsettle serve`: from its options to a running server.

A server reads manifests, reads a cluster without changing it (for development), or is one replica
in a cluster. `_ClusterParts` holds what differs between the three.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from webhook.cli.echo import echo_message, echo_text
from webhook.cli.logging import LogFormat, LogLevel, set_up_server_logging
from webhook.cli.options import PLACEHOLDER_IMAGE, InputError, load_manifests
from webhook.cli.start_message import banner, listening_line
from webhook.cluster.source import Check, Source
from webhook.core.admission.decider import OperatorSettings
from webhook.core.defects.versions import Version
from webhook.core.pull_secrets import PullSecrets
from webhook.process_memory import imports_excluded_from_gc
from webhook.tls.authority import Lifetimes
from webhook.tls.certificate_directory import CertificateDirectory, CertificateError
from webhook.tls.dynamic_source import StoredCertificates
from webhook.tls.file_source import FileSource
from webhook.tls.source import CertificateSource

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer
    from webhook.cluster.event_writer import EventWriter
    from webhook.cluster.token_review import ClusterAuthorizer
    from webhook.server.components import Components

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOptions:
    """The options of `podsettle serve`, which `podsettle serve --help` describes."""

    manifests: Path | None
    host: str
    port: int
    certs_dir: Path
    linger_image: str | None
    linger_version: Version | None
    own_namespace: str | None
    docs_url: str | None
    events: bool
    tls: Literal["files", "self-managed"]
    tls_secret: str
    service: str
    leaf_life: timedelta
    ca_life: timedelta
    webhook_configuration: str | None
    lease: str
    client_ca: Path | None
    drain_quiet: timedelta
    drain_limit: timedelta
    log_format: LogFormat
    log_level: LogLevel

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
        if self.events:
            return "--events"
        return "--webhook-configuration" if self.webhook_configuration else ""

    @property
    def service_name(self) -> str | None:
        """The DNS name of the Service, if a certificate is issued for it."""
        if self.tls != "self-managed" or self.own_namespace is None:
            return None
        return f"{self.service}.{self.own_namespace}.svc"


def run_server(options: ServeOptions) -> None:
    """Build a server, and serve until the process must exit. Raises InputError."""
    with imports_excluded_from_gc():
        from webhook.server.app import create_app
        from webhook.server.run import AddressError, listen, serve

    set_up_server_logging(options.log_format, options.log_level)
    if options.drain_quiet > options.drain_limit:
        raise InputError("--drain-quiet is longer than --drain-limit, so it would have no effect")
    try:
        parts = _build_cluster_parts(options)
        context = _tls_context(options, parts.certificates)
        listener = listen(options.host, options.port)
    except (CertificateError, AddressError) as error:
        raise InputError(str(error)) from None
    components = _build_components(options, parts)
    if options.manifests is not None:
        message = banner(
            options.host,
            listener,
            options.certs_dir,
            parts.source,
            options.manifests,
            needs_certificate=options.client_ca is not None,
        )
    else:
        message = listening_line(options.host, listener, parts.source, options.service_name)
    if options.log_format == "json":
        log.info("%s", message.partition("\n")[0])
    else:
        echo_text(f"{message}\n")
    serve(create_app(components), components, context, listener)


def _build_components(options: ServeOptions, parts: _ClusterParts) -> Components:
    with imports_excluded_from_gc():
        from webhook.server.components import build_components
        from webhook.server.drain import Drain

    linger_image = options.linger_image
    if options.manifests is not None:
        # A server without a cluster changes no real pods, so the helper image need not exist.
        linger_image = linger_image or PLACEHOLDER_IMAGE
    return build_components(
        parts.source,
        OperatorSettings(
            options.own_namespace, linger_image, options.docs_url, options.linger_version
        ),
        certificate_expires=lambda: parts.certificates.expires,
        certificate_fingerprint=lambda: parts.certificates.fingerprint,
        drain=Drain(options.drain_quiet.total_seconds(), options.drain_limit.total_seconds()),
        checks=parts.checks,
        running=parts.running,
        authorizer=parts.authorizer,
        needs_certificate=options.client_ca is not None,
        pull_secrets=parts.pull_secrets,
        events=parts.events,
    )


def _tls_context(options: ServeOptions, certificates: CertificateSource) -> ssl.SSLContext:
    """Return the server's TLS context. Raises InputError."""
    from webhook.server.reviews.client_certs import ClientCAError, request_client_certificate

    if options.client_ca is not None:
        try:
            request_client_certificate(certificates.context, options.client_ca)
        except ClientCAError as error:
            raise InputError(f"--client-ca: {error}") from None
    return certificates.context


class _ClusterParts(NamedTuple):
    """The components that depend on the cluster, or on the manifests that replace it."""

    source: Source
    certificates: CertificateSource
    checks: Callable[[], Iterable[Check]]
    """Returns the readiness checks."""
    running: Callable[[], AbstractAsyncContextManager[None]]
    """Returns a context manager. The components work while its block runs."""
    authorizer: ClusterAuthorizer | None = None
    """Checks the tokens of clients, or None if clients need no token."""
    pull_secrets: PullSecrets | None = None
    """Reads pull secrets, or None if there is no cluster."""
    events: EventWriter | None = None
    """Writes Events, or None without the option."""


def _build_cluster_parts(options: ServeOptions) -> _ClusterParts:
    """Build the components that the options demand. Raises InputError or CertificateError."""
    if options.manifests is not None:
        if options.cluster_option:
            raise InputError(f"{options.cluster_option} needs a cluster: leave --manifests out")
        return _build_offline(options, options.manifests)
    if options.own_namespace is not None:
        return _build_in_cluster(options, options.own_namespace)
    if options.cluster_option:
        raise InputError(f"{options.cluster_option} needs --own-namespace NAME")
    return _build_dev(options)


def _build_offline(options: ServeOptions, manifests: Path) -> _ClusterParts:
    """Build the components of a server that reads files instead of a cluster."""
    try:
        source = load_manifests(manifests)
    except InputError as error:
        raise InputError(f"--manifests: {error.format_message()}") from None
    for problem in source.problems:
        _warn(options, str(problem))
    certificates = FileSource(CertificateDirectory(options.certs_dir))

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with source.running(), certificates.running():
            yield

    if options.listens_on_network:
        clients = f"any client of {options.host}:{options.port}"
        _warn(options, f"warning: {clients} can use /preview, /view and /metrics without a token")
    return _ClusterParts(source, certificates, _combine_checks(source, certificates), running)


def _build_dev(options: ServeOptions) -> _ClusterParts:
    """Build the components of a development server. It reads a cluster and does not change it."""
    # Imported here, because the import takes a third of the start and few commands need it.
    with imports_excluded_from_gc():
        from webhook.cluster.kube_source import KubernetesSource
        from webhook.cluster.pull_secrets import ClusterPullSecrets
        from webhook.cluster.token_review import ClusterAuthorizer

    certificates = FileSource(CertificateDirectory(options.certs_dir))
    server = _new_api_client()
    source = KubernetesSource(server)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with server, source.running(), certificates.running():
            yield

    return _ClusterParts(
        source,
        certificates,
        _combine_checks(source, certificates),
        running,
        ClusterAuthorizer(server) if options.listens_on_network else None,
        ClusterPullSecrets(server),
    )


def _build_in_cluster(options: ServeOptions, namespace: str) -> _ClusterParts:
    """Build the components of one replica that runs in a cluster."""
    with imports_excluded_from_gc():
        from webhook.cluster.pull_secrets import ClusterPullSecrets
        from webhook.cluster.replica import Controller
        from webhook.cluster.token_review import ClusterAuthorizer

    certificates: FileSource | StoredCertificates
    if options.tls == "self-managed":
        certificates = StoredCertificates(options.service, options.tls_secret, _lifetimes(options))
    else:
        certificates = FileSource(CertificateDirectory(options.certs_dir))
    server = _new_api_client()
    controller = Controller(
        server,
        namespace,
        options.lease,
        options.webhook_configuration,
        certificates,
        writes_events=options.events,
    )
    return _ClusterParts(
        controller.source,
        controller.certificates,
        controller.checks,
        controller.running,
        ClusterAuthorizer(server) if options.listens_on_network else None,
        ClusterPullSecrets(server),
        controller.events,
    )


def _lifetimes(options: ServeOptions) -> Lifetimes:
    try:
        return Lifetimes(options.leaf_life, options.ca_life)
    except ValueError as error:
        raise InputError(f"--leaf-life and --ca-life: {error}") from None


def _new_api_client() -> ApiServer:
    """Return a client for the API server of the cluster. The client does not connect yet."""
    from webhook.cluster.client import ApiServer
    from webhook.cluster.errors import Unreachable

    try:
        return asyncio.run(ApiServer.connect(in_cluster_first=True))
    except Unreachable as error:
        raise InputError(f"{error}; to run without a cluster, give --manifests DIR") from None


def _combine_checks(
    source: Source, certificates: CertificateSource
) -> Callable[[], Iterator[Check]]:
    """Return a function that yields the checks of the source and of the certificate."""

    def checks() -> Iterator[Check]:
        yield from source.checks()
        logged = certificates.problem_is_logged
        yield Check("certificate", certificates.ready, certificates.problem, logged)

    return checks


def _warn(options: ServeOptions, message: str) -> None:
    """Print a message to standard error, or log it if all lines have to be JSON."""
    if options.log_format == "json":
        log.warning("%s", message.removeprefix("warning: "))
    else:
        echo_message(message)
