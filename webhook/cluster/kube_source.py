"""An API server as the cluster: four mirrors, and the snapshot that they make."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from webhook.cluster.client import ApiServer, Json
from webhook.cluster.decode import read_namespace, read_node, read_runtime_class
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.reflector import METADATA_ONLY, Reflector
from webhook.cluster.snapshot import Snapshot
from webhook.cluster.source import Check
from webhook.core.cluster.nodes import Nodes
from webhook.core.cluster.view import Namespace
from webhook.core.constants import API_VERSION, KIND
from webhook.core.defects.versions import Version, parse_version
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.errors import FieldError, InvalidPolicyError, ManifestProblem, json_path
from webhook.core.policy.model import SettlePolicy, parse_policy
from webhook.core.policy.status import accepted
from webhook.core.policy.webhook_selectors import WebhookSelectors, webhook_selectors
from webhook.tasks import supervise

log = logging.getLogger(__name__)

_FETCH_TIMEOUT_SECONDS = 5.0
"""Seconds; whoever asks for it waits for less, and the next one finds the answer."""
_MAX_FETCHES = 16
_NOT_FOUND_TTL_SECONDS, _MAX_NOT_FOUND = 2.0, 1000
"""For how long a namespace that is not there is not asked for again, and how many are known."""
_NAMESPACE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS label (RFC 1123), as every namespace's name is."""


@dataclass(frozen=True, slots=True)
class FoundPolicy:
    """A SettlePolicy of the cluster: what it says, or what is wrong with it."""

    name: str
    uid: str
    generation: int
    policy: SettlePolicy | None
    problems: tuple[FieldError, ...]


class KubernetesSource:
    """The cluster as its API server tells it, kept up to date."""

    def __init__(self, server: ApiServer) -> None:
        self.view = Snapshot(namespaces={}, invents_namespaces=False)
        self.webhook_selectors = WebhookSelectors({})
        """What the API server is to ask about because of the policies in force."""
        self._server = server
        self._version: Version | None = None
        self._valid: dict[str, SettlePolicy] = {}
        self._invalid: dict[str, FoundPolicy] = {}
        self._valid_uids: dict[str, str] = {}
        self._rebuild_scheduled = self._nodes_stale = self._policies_stale = self._synced = False
        self._fetches: dict[str, asyncio.Task[Namespace | None]] = {}
        self._not_found: dict[str, float] = {}
        self.observers: list[Callable[[], None]] = []
        """Called after each change of the view."""
        self.statuses: dict[str, Json] = {}
        """Of each policy, as the API server has it; apart, since it decides nothing."""
        self.namespaces = Reflector(
            server, "/api/v1/namespaces", read_namespace, self._schedule_rebuild, metadata_only=True
        )
        self.policies = Reflector(
            server,
            f"/apis/{API_VERSION}/settlepolicies",
            self._decode_policy,
            self._on_policies_changed,
        )
        self.runtime_classes = Reflector(
            server,
            "/apis/node.k8s.io/v1/runtimeclasses",
            read_runtime_class,
            self._schedule_rebuild,
        )
        self.nodes = Reflector(server, "/api/v1/nodes", read_node, self._on_nodes_changed)
        self.reflectors: dict[str, Reflector[Any]] = {
            "namespaces": self.namespaces,
            "settlepolicies": self.policies,
            "runtimeclasses": self.runtime_classes,
            "nodes": self.nodes,
        }

    @property
    def title(self) -> str:
        """The API server's address."""
        return self._server.url

    @property
    def synced(self) -> bool:
        """Whether each kind has been listed once, and the view and the scope were made of it.

        What is written by an empty scope would take the webhooks away.
        """
        return self._synced

    def checks(self) -> Iterable[Check]:
        """Ready once everything was listed; a connection that is lost later is a note."""
        for name, reflector in self.reflectors.items():
            synced = reflector.synced.is_set()
            yield Check(name, synced, reflector.problem or "not read yet" * (not synced))
        yield Check("policies in force", ready=True, note="; ".join(map(str, self.problems)))

    @property
    def problems(self) -> tuple[ManifestProblem, ...]:
        """What is wrong with policies now; what each last said stays in force."""
        return tuple(
            ManifestProblem(f"{KIND}/{found.name}", 0, problem.message, json_path(problem.path))
            for found in self.policies.objects.values()
            for problem in found.problems
        )

    @property
    def policies_in_force(self) -> Mapping[str, SettlePolicy]:
        """The policies in force, by name: of each the last state that was right."""
        return self._valid

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Mirror the cluster while the block runs."""
        runs = [reflector.run for reflector in self.reflectors.values()]
        async with supervise(*runs, self._watch_version):
            yield

    async def fetch_namespace(self, name: str, timeout: float) -> Namespace | None:  # noqa: ASYNC109
        """A namespace that the mirror does not have yet, asked for by one call.

        A pod can be created before the watch has told of its namespace. None where the answer did
        not come in `timeout` seconds, or was that there is no such namespace.
        """
        known = self.namespaces.objects.get(name)
        if known is not None:
            return known
        # Whoever can reach the port can ask for anything; it goes into a path and into the log.
        if not _NAMESPACE_NAME.fullmatch(name):
            return None
        if asyncio.get_running_loop().time() < self._not_found.get(name, 0.0):
            return None
        # One call for all the pods that a new namespace is filled with.
        call = self._fetches.get(name)
        if call is None:
            if len(self._fetches) >= _MAX_FETCHES:
                return None
            call = self._fetches[name] = asyncio.create_task(self._request_namespace(name))
            call.add_done_callback(lambda _: self._fetches.pop(name))
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(call)
        except TimeoutError:
            log.warning("namespace %s: no answer in %.2g s", name, timeout)
            return None

    async def _request_namespace(self, name: str) -> Namespace | None:
        try:
            found = await self._server.request(
                "GET",
                f"/api/v1/namespaces/{name}",
                accept=METADATA_ONLY.format(list=""),
                timeout=_FETCH_TIMEOUT_SECONDS,
            )
        except (ApiError, Unreachable) as error:
            log.warning("namespace %s: %s", name, error)
            if len(self._not_found) >= _MAX_NOT_FOUND:
                self._not_found.clear()
            until = asyncio.get_running_loop().time() + _NOT_FOUND_TTL_SECONDS
            self._not_found[name] = until
            return None
        return self.namespaces.objects.setdefault(name, read_namespace(found))

    def _schedule_rebuild(self) -> None:
        """Make a new snapshot soon: one for all the changes that came together."""
        if not self._rebuild_scheduled:
            self._rebuild_scheduled = True
            asyncio.get_running_loop().call_soon(self._rebuild)

    def _on_nodes_changed(self) -> None:
        self._nodes_stale = True
        self._schedule_rebuild()

    def _on_policies_changed(self) -> None:
        self._policies_stale = True
        self._schedule_rebuild()

    def _rebuild(self) -> None:
        self._rebuild_scheduled = False
        # A copy where they changed, for decisions are remembered by them. Not by the namespaces, of
        # which there are many.
        known, classes = self.view.runtime_classes, self.runtime_classes.objects
        view = replace(
            self.view,
            namespaces=self.namespaces.objects,
            runtime_classes=known if known == classes else dict(classes),
            server_version=self._version,
        )
        # Thousands of nodes or policies take a while, and namespaces come and go all day.
        if self._nodes_stale:
            self._nodes_stale = False
            nodes = Nodes(self.nodes.objects.values())
            if nodes != view.nodes:  # A list that is read again may say the same.
                view = replace(view, nodes=nodes)
        if self._policies_stale:
            self._policies_stale = False
            self._update_valid_policies()
            view = replace(view, policies=PolicySet(self._valid.values()))
            self.webhook_selectors = webhook_selectors(self._valid.values())
        self.view = view
        self._synced = all(each.synced.is_set() for each in self.reflectors.values())
        for observer in self.observers:
            observer()

    def _update_valid_policies(self) -> None:
        """Keep of each policy the last state that was right."""
        found = self.policies.objects
        before, uids = self._valid, self._valid_uids
        self._valid, self._valid_uids = {}, {}
        for name, policy in found.items():
            # A name may be used again: what another object said under it is not to rise again.
            good = policy.policy or (before.get(name) if uids.get(name) == policy.uid else None)
            if good is not None:
                self._valid[name], self._valid_uids[name] = good, policy.uid
        self.statuses = {name: self.statuses[name] for name in found if name in self.statuses}
        bad = {name: policy for name, policy in found.items() if policy.problems}
        for name, policy in bad.items():
            if self._invalid.get(name) != policy:
                verdict = accepted(policy.problems, name in self._valid)
                log.error("%s/%s: %s", KIND, name, verdict.message)
        self._invalid = bad

    async def _watch_version(self) -> None:
        """The server's version, asked again now and then: an upgrade is a restart for it alone."""
        while True:
            try:
                answer = await self._server.request("GET", "/version")
                self._version = parse_version(str(answer.get("gitVersion", "")))
                self._schedule_rebuild()
            except (ApiError, Unreachable):
                await asyncio.sleep(5)
                continue
            await asyncio.sleep(300)

    def _decode_policy(self, document: Json) -> FoundPolicy:
        metadata = document["metadata"]
        name, uid = metadata["name"], metadata.get("uid", "")
        self.statuses[name] = document.get("status") or {}
        generation = metadata.get("generation", 0)
        try:
            # Items of a list leave out what they are.
            document = {"apiVersion": API_VERSION, "kind": KIND, **document, "status": None}
            policy = parse_policy(document)
        except InvalidPolicyError as error:
            return FoundPolicy(name, uid, generation, None, error.errors)
        return FoundPolicy(name, uid, generation, policy, ())
