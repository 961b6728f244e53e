"""The status of SettlePolicies, written by the leader."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.installed_crd import InstalledCrd
from webhook.cluster.kube_source import KubernetesSource
from webhook.cluster.policy_object import PolicyObject
from webhook.cluster.webhook_configuration import APPLY, FIELD_MANAGER
from webhook.core.constants import API_VERSION, KIND
from webhook.core.policy.status_conditions import (
    accepted,
    crd_current,
    merge_conditions,
    runtime_classes_found,
    webhook_scoped,
)
from webhook.core.policy.still_needed import all_nodes, still_needed
from webhook.core.remedies.policy_nodes import PolicyNodes
from webhook.core.types import Json
from webhook.tasks import supervise

log = logging.getLogger(__name__)

# The minimum time between two writes. It matters if the cluster changes often, for example while
# nodes are added.
_WRITE_INTERVAL_SECONDS = 1.0
# After this number of namespaces, the count pauses so that the event loop can answer reviews.
_NAMESPACES_PER_LOOP_TICK = 20


class StatusWriter:
    """A writer that keeps the status of every policy up to date while `may_write` returns True.

    It compares each desired status with the status in the cluster, and writes only differences.
    Therefore a new leader does not write statuses that are up to date, and transition times survive
    a change of the leader.

    `owns_webhooks` says whether podsettle writes the webhook configuration. If it is False, the
    status has no condition `WebhookScoped`.
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
        for observed in (source, crd):
            observed.observers.append(self._write_requested.set)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Write the statuses while the block runs."""
        return supervise(self._write_forever)

    async def _write_forever(self) -> None:
        """Write the statuses after each change, and after a failed attempt."""
        up_to_date = False
        while True:
            await asyncio.sleep(_WRITE_INTERVAL_SECONDS)
            if not (self._may_write() and self._source.synced and self._crd.attempted):
                up_to_date = False
            elif self._write_requested.is_set() or not up_to_date:
                self._write_requested.clear()
                up_to_date = await self._write_all()

    async def _write_all(self) -> bool:
        """Write all statuses that have changed. Return whether every write succeeded."""
        namespace_counts = await self._count_namespaces()
        nodes = all_nodes(self._source.view)
        problem = ""
        for policy_object in list(self._source.policies.objects.values()):
            try:
                await self._write(policy_object, namespace_counts[policy_object.name], nodes)
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.status == 404:
                    continue  # The policy has just been deleted.
                problem = f"status of {KIND} {policy_object.name}: {error}"
            # Reviews are answered in between.
            await asyncio.sleep(0)
        if problem and problem != self.problem:
            log.error("%s", problem)
        elif self.problem and not problem:
            log.info("status of %s: ok again", KIND)
        self.problem = problem
        return not problem

    async def _count_namespaces(self) -> Counter[str]:
        """Return the number of namespaces that each policy covers, by the policy's name."""
        namespace_counts: Counter[str] = Counter()
        view = self._source.view
        for number, namespace in enumerate(view.namespaces.values(), 1):
            coverage = view.policies.coverage_for(namespace, self._own_namespace)
            namespace_counts.update(policy.name for policy in coverage.policies)
            if number % _NAMESPACES_PER_LOOP_TICK == 0:
                await asyncio.sleep(0)
        return namespace_counts

    async def _write(
        self, policy_object: PolicyObject, namespace_count: int, nodes: PolicyNodes
    ) -> None:
        """Write the status of one policy, unless it is up to date."""
        desired = self._desired_status(policy_object, namespace_count, nodes)
        if desired == self._source.statuses.get(policy_object.name):
            return
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": policy_object.name},
            "status": desired,
        }
        path = f"/apis/{API_VERSION}/settlepolicies/{policy_object.name}/status"
        query = f"fieldManager={FIELD_MANAGER}&force=true"
        await self._server.request("PATCH", f"{path}?{query}", body, content_type=APPLY)

    def _desired_status(
        self, policy_object: PolicyObject, namespace_count: int, nodes: PolicyNodes
    ) -> Json:
        policy_in_force = self._source.policies_in_force.get(policy_object.name)
        conditions = [accepted(policy_object.problems, policy_in_force is not None)]
        if policy_in_force is not None:
            view = self._source.view
            conditions += [
                runtime_classes_found(policy_in_force, view),
                still_needed(policy_in_force, nodes),
            ]
            if self._owns_webhooks:
                conditions.append(webhook_scoped(policy_in_force, self._source.webhook_selectors))
        conditions.append(crd_current(self._crd.difference))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        previous = self._source.statuses.get(policy_object.name, {}).get("conditions", ())
        generation = policy_object.generation
        return {
            "observedGeneration": generation,
            "matchedNamespaces": namespace_count,
            "conditions": merge_conditions(conditions, previous, generation, now),
        }
