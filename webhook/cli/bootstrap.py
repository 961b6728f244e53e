"""Functions that build a server: without a cluster, for development, or in a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from webhook.cli.options import InputError, load_manifests
from webhook.cluster.source import Check, Source
from webhook.core.pull_secrets import PullSecrets
from webhook.tls.dynamic_source import StoredCertificates
from webhook.tls.file_source import CertificateDirectory, FileSource
from webhook.tls.source import CertificateSource

if TYPE_CHECKING:
    from webhook.cluster.authorizer import Authorizer
    from webhook.cluster.client import ApiServer


class Components(NamedTuple):
    """The components of a server, in a cluster or outside one."""

    source: Source
    certificates: CertificateSource
    checks: Callable[[], Iterable[Check]]
    """Returns the readiness checks."""
    running: Callable[[], AbstractAsyncContextManager[None]]
    """Returns a context manager. The components work while its block runs."""
    authorizer: Authorizer | None
    """Checks the tokens of clients, or None if clients need no token."""
    pull_secrets: PullSecrets | None
    """Reads pull secrets, or None if there is no cluster."""


def build_offline(manifests: Path, certs_dir: Path) -> Components:
    """Build the components of a server that reads files instead of a cluster."""
    source = load_manifests(manifests)
    for problem in source.problems:
        click.echo(f"podsettle: {problem}", err=True)
    certificates = FileSource(CertificateDirectory(certs_dir))

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with source.running(), certificates.running():
            yield

    return Components(
        source, certificates, _combine_checks(source, certificates), running, None, None
    )


def build_dev(certs_dir: Path, listens_on_network: bool) -> Components:
    """Build the components of a development server. It reads a cluster and does not change it."""
    # Imported here, because the import takes 250 ms and few commands need it.
    from webhook.cluster.kube_source import KubernetesSource
    from webhook.cluster.pull_secrets import ClusterPullSecrets
    from webhook.cluster.token_review import ClusterAuthorizer

    certificates = FileSource(CertificateDirectory(certs_dir))
    server = _new_api_client()
    source = KubernetesSource(server)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with server, source.running(), certificates.running():
            yield

    authorizer = ClusterAuthorizer(server) if listens_on_network else None
    checks = _combine_checks(source, certificates)
    return Components(source, certificates, checks, running, authorizer, ClusterPullSecrets(server))


def build_in_cluster(
    namespace: str,
    lease: str,
    webhook_configuration: str | None,
    certificates: FileSource | StoredCertificates,
    listens_on_network: bool,
) -> Components:
    """Build the components of one replica that runs in a cluster."""
    from webhook.cluster.controller import Controller
    from webhook.cluster.pull_secrets import ClusterPullSecrets
    from webhook.cluster.token_review import ClusterAuthorizer

    server = _new_api_client()
    controller = Controller(server, namespace, lease, webhook_configuration, certificates)
    authorizer = ClusterAuthorizer(server) if listens_on_network else None
    return Components(
        controller.source,
        controller.certificates,
        controller.checks,
        controller.running,
        authorizer,
        ClusterPullSecrets(server),
    )


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
        yield Check("certificate", certificates.ready, certificates.problem)

    return checks
