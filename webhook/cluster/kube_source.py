"""The source that reads the cluster view from an API server, with one reflector per kind."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.decode import read_namespace, read_node, read_runtime_class
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.fair_slots import FairSlots, NoSlotError
from webhook.cluster.policy_object import PolicyObject, policy_problems, read_policy
from webhook.cluster.reader import read_metadata
from webhook.cluster.reflector import METADATA_ONLY, Reflector
from webhook.cluster.source import Check, NamespaceLookup
from webhook.core.cluster.nodes import Nodes
from webhook.core.constants import API_VERSION, DNS_LABEL_NAME, KIND
from webhook.core.defects.versions import Version, parse_version
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.status_conditions import accepted
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.core.policy.webhook_selectors import WebhookSelectors, webhook_selectors
from webhook.limited_log import LimitedLog
from webhook.single_flight import SingleFlightCache
from webhook.tasks import supervise

log = logging.getLogger(__name__)

# The timeout of a request for a namespace. A review stops waiting earlier. An answer that comes
# later is stored for the next review.
_FETCH_TIMEOUT_SECONDS = 5.0
# Clients could send reviews with invented namespaces, which must not overload the API server. With
# `MIN_SLOT_SECONDS`, these limits are 320 requests a second, and 160 for each client address.
MAX_FETCHES = 32
MAX_FETCHES_PER_CLIENT = 16
# A request must begin in this share of the time that a review waits for a namespace.
FETCH_QUEUE_SHARE = 0.5
# The time for which a failed request for a namespace is not repeated.
_FETCH_RETRY_SECONDS = 2.0
# The maximum number of failed requests that are remembered.
_MAX_FAILED_FETCHES = 1000
# To process 5,000 nodes takes 5 ms, and 1,000 policies take 15 ms. They often change one after the
# other, by an autoscaler or by `kubectl apply`. The interval keeps that at 3 % of the time.
BURST_INTERVAL_SECONDS = 0.5
# Only polling detects an upgrade of the API server, because no event announces it.
_VERSION_POLL_SECONDS = 300
_VERSION_RETRY_SECONDS = 5


class KubernetesSource:
    """A source whose view of the cluster is kept up to date by watches on the API server."""

    def __init__(self, server: ApiServer) -> None:
        self.view = Snapshot(namespaces={}, invents_namespaces=False)
        self.webhook_selectors = WebhookSelectors({})
        """The selectors of the webhooks that the policies in force need."""
        self._server = server
        self.title = server.url
        self._version: Version | None = None
        self.policies_in_force: Mapping[str, SettlePolicy] = {}
        """The last valid state of each policy, by name."""
        self._valid: dict[tuple[str, str], SettlePolicy] = {}
        """The same by name and uid. A new object can have the name of a deleted one."""
        self._invalid: dict[str, PolicyObject] = {}
        """The policies whose current state has problems, by name."""
        self.synced = False
        """Whether the view and the selectors contain the objects of every kind. The leader must not
        write before this is True: with incomplete selectors it would delete webhooks."""
        self._rebuild_scheduled = False
        self._stale: set[str] = set()
        """The kinds with an object that has changed since they were processed."""
        self._due_at: dict[str, float] = {}
        """When nodes and policies may be processed again, by the clock of the event loop. It is
        infinite for a kind that has changed and has a timer."""
        # The key is a client and a namespace. If all clients shared one, a client could request a
        # namespace before it is created, and its failure would count for the API server's reviews.
        failed = (NamespaceLookup.MISSING, NamespaceLookup.FAILED)
        self._fetches: SingleFlightCache[tuple[str, str], NamespaceLookup] = SingleFlightCache(
            lambda result: _FETCH_RETRY_SECONDS if result in failed else 0.0,
            max_entries=_MAX_FAILED_FETCHES,
        )
        self._fetch_slots = FairSlots(MAX_FETCHES, MAX_FETCHES_PER_CLIENT)
        self._fetch_log = LimitedLog(log)
        self.observers: list[Callable[[], None]] = []
        """Callbacks, called after each change of the view."""
        self.namespaces = Reflector(
            server,
            "/api/v1/namespaces",
            read_namespace,
            partial(self._on_change, "namespaces"),
            accept=METADATA_ONLY,
        )
        self.policies: Reflector[PolicyObject] = Reflector(
            server,
            f"/apis/{API_VERSION}/settlepolicies",
            lambda item: read_policy(msgspec.json.decode(item), self.policies.objects),
            partial(self._on_burst, "settlepolicies"),
            not_found_hint="the CRD is not installed; run: "
            "kubectl apply --server-side -f charts/podsettle/crds",
        )
        self.runtime_classes = Reflector(
            server,
            "/apis/node.k8s.io/v1/runtimeclasses",
            read_runtime_class,
            self._schedule_rebuild,
        )
        on_nodes = partial(self._on_burst, "nodes")
        self.nodes = Reflector(server, "/api/v1/nodes", read_node, on_nodes)
        self.reflectors: dict[str, Reflector[Any]] = {
            "namespaces": self.namespaces,
            "settlepolicies": self.policies,
            "runtimeclasses": self.runtime_classes,
            "nodes": self.nodes,
        }

    def checks(self) -> Iterable[Check]:
        """Return one check for each kind, and one check for problems of policies.

        The check of a kind fails until its objects have been listed once. If the connection is lost
        later, the check passes with a note.
        """
        for name, reflector in self.reflectors.items():
            synced = reflector.synced.is_set()
            note = reflector.problem or "not read yet" * (not synced)
            yield Check(name, synced, note, logged=bool(reflector.problem))
        note = "; ".join(map(str, self.problems))
        yield Check("policies in force", ready=True, note=note, logged=bool(note))

    @property
    def problems(self) -> tuple[ManifestProblem, ...]:
        """The current problems of policies. The last valid state of each policy is in force."""
        return policy_problems(self.policies.objects.values())

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the view up to date while the block runs."""
        runs = [reflector.run for reflector in self.reflectors.values()]
        return supervise(*runs, self._watch_version)

    async def fetch_namespace(self, name: str, client: str, seconds: float) -> NamespaceLookup:
        """Request a namespace from the API server if the view does not contain it.

        A review of a pod can arrive before the watch event of its new namespace. The result is
        FAILED if the look-up takes more than `seconds`.
        """
        if self._rebuild_scheduled:
            self._rebuild()
        if name in self.view.namespaces:
            return NamespaceLookup.FOUND
        # A client chooses the name, and it becomes part of a path and of a log line.
        if not DNS_LABEL_NAME.fullmatch(name):
            return NamespaceLookup.MISSING
        try:
            async with asyncio.timeout(seconds):
                return await self._fetches.get(
                    (client, name), lambda: self._request_namespace(name, client, seconds), client
                )
        except TimeoutError:
            self._log_failed_fetch(name, client, f"no answer in {seconds:.2g} s")
            return NamespaceLookup.FAILED

    async def _request_namespace(self, name: str, client: str, seconds: float) -> NamespaceLookup:
        """Request a namespace, and add it to the view.

        A namespace that was deleted since the API server read it counts as missing.
        """
        try:
            async with self._fetch_slots.slot(client, seconds * FETCH_QUEUE_SHARE):
                path = f"/api/v1/namespaces/{name}"
                document = await read_metadata(self._server, path, _FETCH_TIMEOUT_SECONDS)
        except NoSlotError as error:
            self._log_failed_fetch(name, client, f"too many look-ups: {error}")
            return NamespaceLookup.REFUSED
        except (ApiError, Unreachable) as error:
            self._log_failed_fetch(name, client, str(error))
            is_missing = isinstance(error, ApiError) and error.status == 404
            return NamespaceLookup.MISSING if is_missing else NamespaceLookup.FAILED
        version = str(document["metadata"].get("resourceVersion"))
        if not self.namespaces.add(name, read_namespace(document), version):
            return NamespaceLookup.MISSING
        self._stale.add("namespaces")
        self._rebuild()
        return NamespaceLookup.FOUND

    def _log_failed_fetch(self, name: str, client: str, cause: str) -> None:
        self._fetch_log.warning(f"fetch namespace {name} for the client {client}: {cause}")

    def _schedule_rebuild(self) -> None:
        """Schedule one rebuild of the view for all changes in an iteration of the event loop."""
        if not self._rebuild_scheduled:
            self._rebuild_scheduled = True
            asyncio.get_running_loop().call_soon(self._rebuild)

    def _on_burst(self, kind: str) -> None:
        loop, due_at = asyncio.get_running_loop(), self._due_at.get(kind, 0.0)
        if due_at <= loop.time():
            # No timer: the view must contain the first list when it counts as synced.
            self._process(kind)
        elif due_at < math.inf:
            self._due_at[kind] = math.inf
            loop.call_at(due_at, self._process, kind)

    def _process(self, kind: str) -> None:
        self._due_at[kind] = asyncio.get_running_loop().time() + BURST_INTERVAL_SECONDS
        self._on_change(kind)

    def _on_change(self, kind: str) -> None:
        self._stale.add(kind)
        self._schedule_rebuild()

    def _rebuild(self) -> None:
        """Create a new view from the reflectors' objects, and call the observers."""
        self._rebuild_scheduled = False
        # The reflectors change their mappings in place, and a view must not change. So it gets
        # copies. The decision cache compares the mappings of RuntimeClasses.
        previous, current = self.view.runtime_classes, self.runtime_classes.objects
        view = replace(
            self.view,
            runtime_classes=previous if previous == current else dict(current),
            server_version=self._version,
        )
        # What can be thousands of objects is processed only after it has changed.
        stale, self._stale = self._stale, set()
        if "namespaces" in stale:
            view = replace(view, namespaces=dict(self.namespaces.objects))
        if "nodes" in stale:
            nodes = Nodes(self.nodes.objects.values())
            if nodes != view.nodes:  # They are often equal after the reflector lists again.
                view = replace(view, nodes=nodes)
        if "settlepolicies" in stale:
            self._update_valid_policies()
            view = replace(view, policies=view.policies.of(self._valid.values()))
            self.webhook_selectors = webhook_selectors(self._valid.values())
        self.view = view
        self.synced = all(reflector.synced.is_set() for reflector in self.reflectors.values())
        for observer in self.observers:
            observer()

    def _update_valid_policies(self) -> None:
        """Update the last valid state of each policy, and log new problems."""
        policies = self.policies.objects
        self._valid = {
            (name, each.uid): valid
            for name, each in policies.items()
            if (valid := each.policy or self._valid.get((name, each.uid))) is not None
        }
        self.policies_in_force = {name: valid for (name, _), valid in self._valid.items()}
        invalid = {name: policy for name, policy in policies.items() if policy.problems}
        for name in self._invalid.keys() - invalid.keys():
            log.info("%s/%s: %s", KIND, name, "valid again" if name in policies else "deleted")
        for name, policy in invalid.items():
            if self._invalid.get(name) != policy:
                condition = accepted(policy.problems, name in self.policies_in_force)
                log.error("%s/%s: %s", KIND, name, condition.message)
        self._invalid = invalid

    async def _watch_version(self) -> None:
        """Poll the API server's version until cancelled, because an upgrade changes it."""
        while True:
            pause = _VERSION_RETRY_SECONDS
            with suppress(ApiError, Unreachable):
                answer = await self._server.request("GET", "/version")
                self._version = parse_version(str(answer.get("gitVersion", "")))
                self._schedule_rebuild()
                pause = _VERSION_POLL_SECONDS
            await asyncio.sleep(pause)
