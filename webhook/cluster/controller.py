"""One replica of podsettle in a cluster: what it mirrors, what it serves with, and what it writes.

Each replica mirrors and serves. The one that holds the Lease also writes: the certificates' Secret,
podsettle's part of the webhook configuration, and the status of policies. What the others do not do
is never missing from an answer to a review.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

from webhook.cluster.client import ApiServer
from webhook.cluster.installed_crd import InstalledCrd
from webhook.cluster.kube_source import KubernetesSource
from webhook.cluster.leader_election import LeaderElector
from webhook.cluster.secret import SecretStore
from webhook.cluster.source import Check
from webhook.cluster.status_writer import StatusWriter
from webhook.cluster.trust_check import TrustCheck
from webhook.cluster.webhook_configuration import WebhookConfiguration
from webhook.tls.dynamic_source import DynamicSource, StoredCertificates, service_names
from webhook.tls.source import CertificateSource


class Controller:
    """A replica that shares a namespace, a Lease and a webhook configuration with its like."""

    def __init__(
        self,
        server: ApiServer,
        namespace: str,
        lease: str,
        webhook_configuration: str | None,
        certificates: CertificateSource | StoredCertificates,
    ) -> None:
        self._server = server
        self.source = KubernetesSource(server)
        self._crd = InstalledCrd(server)
        # Two processes with one identity would both think that they hold the Lease.
        identity = f"{socket.gethostname()}_{os.urandom(6).hex()}"
        self.elector = LeaderElector(server, namespace, lease, identity)
        self.webhook_configuration: WebhookConfiguration | None = None
        if isinstance(certificates, StoredCertificates):
            certificates = DynamicSource(
                SecretStore(server, namespace, certificates.secret),
                service_names(certificates.service, namespace),
                certificates.lifetimes,
                self._may_write,
                self._registered_bundles,
            )
        self.certificates: CertificateSource = certificates
        self._trust_check = TrustCheck(certificates)
        if webhook_configuration is not None:
            self.webhook_configuration = WebhookConfiguration(
                server,
                webhook_configuration,
                selectors=lambda: self.source.webhook_selectors,
                bundle=lambda: self.certificates.bundle,
                may_write=lambda: self._may_write() and self.source.synced,
            )
            self.source.observers.append(self.webhook_configuration.request_sync)
        self.status = StatusWriter(
            server,
            self.source,
            self._crd,
            namespace,
            self._may_write,
            owns_webhooks=webhook_configuration is not None,
        )

    def checks(self) -> Iterator[Check]:
        """What readiness looks at."""
        yield from self.source.checks()
        yield Check("certificate", self.certificates.ready, self.certificates.problem)
        if self.webhook_configuration is not None:
            yield _registration_check(self.webhook_configuration, self._trust_check)
        yield self._crd.check()
        yield Check("lease", True, self.elector.problem)
        yield Check("status", True, self.status.problem)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Do all of it while the block runs."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._server)
            # Outermost: who acts on the Lease has ended before it is given up.
            await stack.enter_async_context(self.elector.running())
            await stack.enter_async_context(self.source.running())
            await stack.enter_async_context(self._crd.running())
            await stack.enter_async_context(self.certificates.running())
            if self.webhook_configuration is not None:
                await stack.enter_async_context(self.webhook_configuration.running())
            await stack.enter_async_context(self.status.running())
            yield

    def _may_write(self) -> bool:
        return self.elector.is_leader

    def _registered_bundles(self) -> list[tuple[str, bytes]]:
        entries = (
            self.webhook_configuration.entries if self.webhook_configuration is not None else ()
        )
        return [(entry.host, entry.bundle) for entry in entries]


def _registration_check(registration: WebhookConfiguration, acceptance: TrustCheck) -> Check:
    """Whether the API server's calls get through to what is served."""
    name = "registration"
    if not registration.synced:
        return Check(name, False, f"{registration.title} has not been read yet")
    if not registration.exists:
        return Check(name, True, f"{registration.title} does not exist: nobody calls podsettle")
    refused = acceptance.errors(registration.entries)
    note = "; ".join((*refused, *filter(None, (registration.problem,))))
    return Check(name, not refused, note)
