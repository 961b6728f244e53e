"""The components of a server: from files, beside a cluster, or in a cluster."""

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
    """What a server is made of, wherever it runs."""

    source: Source
    certificates: CertificateSource
    checks: Callable[[], Iterable[Check]]
    running: Callable[[], AbstractAsyncContextManager[None]]
    authorizer: Authorizer | None
    pull_secrets: PullSecrets | None


def build_offline(manifests: Path, certs_dir: Path) -> Components:
    """Everything from files."""
    source = load_manifests(manifests)
    for problem in source.problems:
        click.echo(f"podsettle: {problem}", err=True)
    certificates = FileSource(CertificateDirectory(certs_dir))

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with source.running(), certificates.running():
            yield

    return Components(source, certificates, _checks(source, certificates), running, None, None)


def build_dev(certs_dir: Path, beyond_loopback: bool) -> Components:
    """For a developer: a cluster that is read and not written to."""
    # The client takes a quarter of a second to import: only those who need it pay.
    from webhook.cluster.kube_source import KubernetesSource
    from webhook.cluster.pull_secrets import ClusterPullSecrets
    from webhook.cluster.token_review import ClusterAuthorizer

    certificates = FileSource(CertificateDirectory(certs_dir))
    server = _connect()
    source = KubernetesSource(server)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with server, source.running(), certificates.running():
            yield

    authorizer = ClusterAuthorizer(server) if beyond_loopback else None
    checks = _checks(source, certificates)
    return Components(source, certificates, checks, running, authorizer, ClusterPullSecrets(server))


def build_in_cluster(
    namespace: str,
    lease: str,
    webhook_configuration: str | None,
    certificates: FileSource | StoredCertificates,
    beyond_loopback: bool,
) -> Components:
    """A replica of an installation."""
    from webhook.cluster.controller import Controller
    from webhook.cluster.pull_secrets import ClusterPullSecrets
    from webhook.cluster.token_review import ClusterAuthorizer

    server = _connect()
    replica = Controller(server, namespace, lease, webhook_configuration, certificates)
    authorizer = ClusterAuthorizer(server) if beyond_loopback else None
    return Components(
        replica.source,
        replica.certificates,
        replica.checks,
        replica.running,
        authorizer,
        ClusterPullSecrets(server),
    )


def _connect() -> ApiServer:
    """The cluster, its address and credentials read; the connection is made by the server."""
    from webhook.cluster.client import ApiServer
    from webhook.cluster.errors import Unreachable

    try:
        return asyncio.run(ApiServer.connect(in_cluster_first=True))
    except Unreachable as error:
        raise InputError(f"{error}; or give --manifests DIR") from None


def _checks(source: Source, certificates: CertificateSource) -> Callable[[], Iterator[Check]]:
    def checks() -> Iterator[Check]:
        yield from source.checks()
        yield Check("certificate", certificates.ready, certificates.problem)

    return checks
