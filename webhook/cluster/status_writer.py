"""The status of SettlePolicies, written by the leader."""

from __future__ import annotations

import asyncio
import math
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
from webhook.tasks import TimeSlice, supervise

# The minimum time between two writes. It matters if the cluster changes often, for example while
# nodes are added.
_WRITE_INTERVAL_SECONDS = 1.0
# The minimum time between two writes of statuses of which only messages or counts have changed. A
# node that joins changes the message of every policy, and an autoscaler adds many.
_DETAILS_INTERVAL_SECONDS = 60.0


class StatusWriter:
    """A writer that keeps the status of every policy up to date while `may_write` returns True.

    It compares each desired status with the status in the cluster, and writes only differences.
    Therefore a new leader does not write statuses that are up to date, and transition times survive
    a change of the leader. Differences in messages and counts alone are written once a minute.

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
        self._nodes: PolicyNodes | None = None
        self._write_requested = asyncio.Event()
        self._details_due_at = 0.0
        """When messages and counts alone may be written again, by the clock of the event loop."""
        for observed in (source, crd):
            observed.observers.append(self._write_requested.set)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Write the statuses while the block runs."""
        return supervise(self._write_forever)

    async def _write_forever(self) -> None:
        """Write the statuses after each change and failed attempt, and when details are due."""
        due_at, now = 0.0, asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_WRITE_INTERVAL_SECONDS)
            if not (self._may_write() and self._source.synced and self._crd.attempted):
                due_at = 0.0
            elif self._write_requested.is_set() or now() >= due_at:
                self._write_requested.clear()
                due_at = await self._write_all()

    async def _write_all(self) -> float:
        """Write all statuses that have changed. Return when to do so again without a change."""
        now, due_at = asyncio.get_running_loop().time(), math.inf
        next_details_due_at, in_force = self._details_due_at, self._source.policies_in_force
        namespace_counts = await self._count_namespaces()
        nodes = self._nodes = all_nodes(self._source.view, self._nodes)
        problem = ""
        time_slice = TimeSlice()
        for policy_object in list(self._source.policies.objects.values()):
            await time_slice.yield_if_over()
            name, status = policy_object.name, policy_object.status
            valid = policy_object.policy
            if valid is not None and valid is not in_force.get(name):
                continue  # It was not in the view yet. The change of the view causes another pass.
            desired = self._desired_status(policy_object, namespace_counts[name], nodes)
            if _decisive(desired) == _decisive(status):
                if desired == status:
                    continue
                if now < self._details_due_at:
                    due_at = self._details_due_at
                    continue
                next_details_due_at = now + _DETAILS_INTERVAL_SECONDS
            try:
                await self._write(name, desired)
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.status == 404:
                    continue  # The policy has just been deleted.
                problem = f"status of {KIND} {name}: {error}"
        self.problem = problem
        if problem:
            return 0.0
        self._details_due_at = next_details_due_at
        return due_at

    async def _count_namespaces(self) -> Counter[str]:
        """Return the number of namespaces that each policy covers, by the policy's name."""
        namespace_counts: Counter[str] = Counter()
        view = self._source.view
        time_slice = TimeSlice()
        for namespace in view.namespaces.values():
            await time_slice.yield_if_over()
            coverage = view.policies.coverage_for(namespace, self._own_namespace)
            namespace_counts.update(policy.name for policy in coverage.policies)
        return namespace_counts

    async def _write(self, name: str, status: Json) -> None:
        metadata = {"name": name}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": status}
        path = f"/apis/{API_VERSION}/settlepolicies/{name}/status"
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
        previous = policy_object.status.get("conditions", ())
        generation = policy_object.generation
        return {
            "observedGeneration": generation,
            "matchedNamespaces": namespace_count,
            "conditions": merge_conditions(conditions, previous, generation, now),
        }


def _decisive(status: Json) -> object:
    """Return a status without its messages, counts and times, whose changes are written late."""
    conditions = status.get("conditions") or ()
    return status.get("observedGeneration"), [
        (each.get("type"), each.get("status"), each.get("reason")) for each in conditions
    ]
