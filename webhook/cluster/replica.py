"""The components of a replica that runs in a cluster, except the HTTP server.

Each replica watches the cluster and answers reviews. Only the leader writes the Secret of
certificates, podsettle's part of the webhook configuration, and the status of policies. Answers to
reviews never depend on these writes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

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
    """The components of a replica, which this class connects and runs.

    All replicas of an installation share the namespace, the Lease and the webhook configuration.
    If `webhook_configuration_name` is None, podsettle neither reads nor writes a webhook
    configuration.
    """

    def __init__(
        self,
        server: ApiServer,
        namespace: str,
        lease_name: str,
        webhook_configuration_name: str | None,
        certificates: CertificateSource | StoredCertificates,
    ) -> None:
        self._server = server
        self.source = KubernetesSource(server)
        self._crd = InstalledCrd(server)
        # The random suffix makes the identity unique. Two processes with the same identity would
        # both act as the leader.
        identity = f"{socket.gethostname()}_{os.urandom(6).hex()}"
        self.elector = LeaderElector(server, namespace, lease_name, identity)
        self.webhook_configuration: WebhookConfiguration | None = None
        if isinstance(certificates, StoredCertificates):
            certificates = DynamicSource(
                SecretStore(server, namespace, certificates.secret),
                service_names(certificates.service, namespace),
                certificates.lifetimes,
                self._may_write,
                lambda: found.webhooks if (found := self.webhook_configuration) else (),
                # A certificate issued by a clock that is behind could have expired for the API
                # server.
                now=lambda: datetime.now(UTC) + server.clock_behind,
            )
        self.certificates: CertificateSource = certificates
        self._trust_check = TrustCheck(certificates)
        if webhook_configuration_name is not None:
            self.webhook_configuration = WebhookConfiguration(
                server,
                webhook_configuration_name,
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
            owns_webhooks=self.webhook_configuration is not None,
        )

    def checks(self) -> Iterator[Check]:
        """Return all readiness checks of the replica."""
        yield from self.source.checks()
        serving = self.certificates
        yield Check("certificate", serving.ready, serving.problem)
        if self.webhook_configuration is not None:
            yield _registration_check(self.webhook_configuration, self._trust_check)
        yield self._crd.check()
        # Without a leader, nothing registers the webhooks of policies. A deployer has to see it.
        joined, problem = self.elector.joined, self.elector.problem
        waiting = "" if joined else "the Lease has not been read yet"
        yield Check("lease", joined, problem or waiting)
        yield Check("status", True, self.status.problem)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all components while the block runs."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._server)
            # Contexts exit in reverse order. So the components that write as the leader stop before
            # the elector releases the Lease.
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


def _registration_check(configuration: WebhookConfiguration, trust_check: TrustCheck) -> Check:
    """Return the check that fails if the API server cannot call a registered webhook."""
    name = "registration"
    if not configuration.synced:
        return Check(name, False, f"{configuration.title} has not been read yet")
    if not configuration.exists:
        note = f"{configuration.title} does not exist: the API server does not call podsettle"
        return Check(name, True, note)
    errors = trust_check.errors(configuration.webhooks)
    problem = configuration.problem and f"{configuration.title}: {configuration.problem}"
    return Check(name, not errors, "; ".join(filter(None, (*errors, problem))))
