"""The status of SettlePolicies, written by the leader."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from webhook.cluster.client import ApiServer, Json
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.installed_crd import InstalledCrd
from webhook.cluster.kube_source import FoundPolicy, KubernetesSource
from webhook.cluster.webhook_configuration import APPLY, FIELD_MANAGER
from webhook.core.constants import API_VERSION, KIND
from webhook.core.policy.status import (
    accepted,
    crd_current,
    merge_conditions,
    runtime_classes_found,
    still_needed,
    webhook_scoped,
)
from webhook.tasks import supervise

log = logging.getLogger(__name__)

# Limits the writes where the cluster changes often, for example while nodes are added.
_WRITE_INTERVAL_SECONDS = 1.0
# After this many namespaces, the event loop serves reviews first.
_NAMESPACES_PER_LOOP_TICK = 20


class StatusWriter:
    """A writer that keeps the status of every policy up to date while `may_write` returns True.

    It compares each desired status with the one in the cluster. A new leader therefore writes
    nothing that is up to date already, and transition times survive a change of the leader.

    `owns_webhooks` is True where podsettle writes the webhook configuration. Only then the status
    has the condition `WebhookScoped`.
    """

    def __init__(
        self,
        server: ApiServer,
        source: KubernetesSource,
        crd: InstalledCrd,
        own_namespace: str | None,
        may_write: Callable[[], bool],
        *,
        owns_webhooks: bool,
    ) -> None:
        self.problem = ""
        self._server = server
        self._source = source
        self._crd = crd
        self._own_namespace = own_namespace
        self._may_write = may_write
        self._owns_webhooks = owns_webhooks
        self._write_requested = asyncio.Event()
        for each in (source, crd):
            each.observers.append(self._write_requested.set)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write the statuses while the block runs."""
        async with supervise(self._write_forever):
            yield

    async def _write_forever(self) -> None:
        done = False
        while True:
            await asyncio.sleep(_WRITE_INTERVAL_SECONDS)
            if not (self._may_write() and self._source.synced and self._crd.known):
                done = False
            elif self._write_requested.is_set() or not done:
                self._write_requested.clear()
                done = await self._write_all()

    async def _write_all(self) -> bool:
        """Write all statuses that have changed; return whether every write succeeded."""
        counts = await self._count_namespaces()
        problem = ""
        for found in list(self._source.policies.objects.values()):
            try:
                await self._write(found, counts[found.name])
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.status == 404:
                    continue  # The policy has just been deleted.
                problem = f"status of {KIND} {found.name}: {error}"
        if problem and problem != self.problem:
            log.error("%s", problem)
        self.problem = problem
        return not problem

    async def _count_namespaces(self) -> Counter[str]:
        """Return the number of namespaces that each policy covers, by the policy's name."""
        counts: Counter[str] = Counter()
        view = self._source.view
        for number, namespace in enumerate(list(view.namespaces.values()), 1):
            coverage = view.policies.coverage_for(namespace, self._own_namespace)
            counts.update(policy.name for policy in coverage.policies)
            if number % _NAMESPACES_PER_LOOP_TICK == 0:
                await asyncio.sleep(0)
        return counts

    async def _write(self, found: FoundPolicy, namespaces: int) -> None:
        desired = self._desired_status(found, namespaces)
        if desired == self._source.statuses.get(found.name):
            return
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": found.name},
            "status": desired,
        }
        path = f"/apis/{API_VERSION}/settlepolicies/{found.name}/status"
        query = f"fieldManager={FIELD_MANAGER}&force=true"
        await self._server.request("PATCH", f"{path}?{query}", body, content_type=APPLY)

    def _desired_status(self, found: FoundPolicy, namespaces: int) -> Json:
        in_force = self._source.policies_in_force.get(found.name)
        conditions = [accepted(found.problems, in_force is not None)]
        if in_force is not None:
            view = self._source.view
            conditions += [
                runtime_classes_found(in_force, view),
                still_needed(in_force, view),
            ]
            if self._owns_webhooks:
                conditions.append(webhook_scoped(in_force, self._source.webhook_selectors))
        conditions.append(crd_current(self._crd.difference))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        before = self._source.statuses.get(found.name, {}).get("conditions", ())
        return {
            "observedGeneration": found.generation,
            "matchedNamespaces": namespaces,
            "conditions": merge_conditions(conditions, before, found.generation, now),
        }
