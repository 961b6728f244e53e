"""How often the status of policies is written and read, by the clock of a stepped loop."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.factories import node, policy_document
from tests.support.stepped_loop import SteppedLoop, stepped
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import Unreachable
from webhook.cluster.installed_crd import InstalledCrd
from webhook.cluster.kube_source import KubernetesSource
from webhook.cluster.policy_object import read_policy
from webhook.cluster.raw_responses import decode_page
from webhook.cluster.status_writer import StatusWriter
from webhook.core.policy.model import parse_policy
from webhook.core.policy.webhook_selectors import webhook_selectors

POLICIES = [f"policy-{number}" for number in range(10)]
NEW, FIXED = "cri-o://1.36.0", "cri-o://1.33.13"


class StoringApiServer:
    """An API server that stores what is written, counts it, and sends it to the watches."""

    url = "https://10.0.0.1:6443"

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.refuses = False
        self.watching = asyncio.Event()
        """An event that is set when there is a watch for each resource."""
        self._watched: set[str] = set()
        self.stored: dict[str, dict[str, Any]] = defaultdict(dict)
        """The objects of each resource, by name."""
        self._events: dict[str, asyncio.Queue[bytes]] = defaultdict(asyncio.Queue)
        for name in POLICIES:
            document = policy_document(name)
            document["metadata"] |= {"uid": name, "generation": 1}
            self.store("settlepolicies", document)

    def store(self, resource: str, document: Any) -> None:
        name = document["metadata"]["name"]
        kind = "MODIFIED" if name in self.stored[resource] else "ADDED"
        document["metadata"]["resourceVersion"] = "2"
        self.stored[resource][name] = document
        event = {"type": kind, "object": document}
        self._events[resource].put_nowait(json.dumps(event).encode())

    def messages(self) -> set[str]:
        """Return the messages of the condition StillNeeded."""
        statuses = [each["status"] for each in self.stored["settlepolicies"].values()]
        return {
            condition["message"]
            for status in statuses
            for condition in status["conditions"]
            if condition["type"] == "StillNeeded"
        }

    async def request(self, method: str, _path: str, body: Any = None, **_options: Any) -> Any:
        if method == "PATCH":
            if self.refuses:
                raise Unreachable("PATCH: connection refused")
            name = body["metadata"]["name"]
            self.writes.append(name)
            known = self.stored["settlepolicies"][name]
            self.store("settlepolicies", {**known, "status": body["status"]})
        return {"gitVersion": "v1.36.0"}

    async def pages(self, path: str, *_arguments: Any) -> AsyncIterator[Any]:
        items = self.stored[path.rpartition("/")[2]].values()
        page = {"metadata": {"resourceVersion": "1"}, "items": [*items]}
        yield decode_page(json.dumps(page).encode())

    @asynccontextmanager
    async def watch(self, path: str, *_arguments: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        resource = path.partition("?")[0].rpartition("/")[2]
        self._watched.add(resource)
        if len(self._watched) == 4:
            self.watching.set()
        yield self._lines(self._events[resource])

    async def _lines(self, events: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
        while True:
            yield await events.get()


Written = Callable[[float], Awaitable[list[str]]]


@asynccontextmanager
async def writing() -> AsyncIterator[tuple[StoringApiServer, Written]]:
    """Yield a server, and a function that lets seconds pass and returns the writes."""
    server = StoringApiServer()
    source = KubernetesSource(cast(ApiServer, server))
    crd = cast(InstalledCrd, SimpleNamespace(observers=[], attempted=True, difference=None))
    writer = StatusWriter(
        cast(ApiServer, server), source, crd, "own", lambda: True, owns_webhooks=True
    )
    loop = cast(SteppedLoop, asyncio.get_running_loop())

    async def written(seconds: float) -> list[str]:
        server.writes.clear()
        await loop.advance(seconds)
        return sorted(server.writes)

    async with source.running():
        await server.watching.wait()
        async with writer.running():
            yield server, written


@stepped
async def test_nodes_that_join_do_not_rewrite_every_status() -> None:
    async with writing() as (server, written):
        assert await written(10) == POLICIES
        server.store("nodes", node("n0"))
        assert await written(10) == POLICIES  # A node is affected.
        server.store("nodes", node("n1"))
        assert await written(10) == POLICIES  # The first message for a while.
        joining = []
        for number in range(2, 52):
            server.store("nodes", node(f"n{number}", NEW))
            joining += await written(0.8)
        assert joining == []
        assert await written(60) == POLICIES
        (message,) = server.messages()
        assert message.startswith("2 of 52 nodes still run ")
        assert await written(3600) == []


@stepped
async def test_count_of_namespaces_is_written_late_and_a_new_status_at_once() -> None:
    async with writing() as (server, written):
        assert await written(10) == POLICIES
        server.store("nodes", node("n0"))
        assert await written(10) == POLICIES
        for number in range(3):
            server.store("namespaces", {"metadata": {"name": f"ns-{number}"}})
            assert await written(10) == (POLICIES if number == 0 else [])
        server.store("nodes", node("n0", FIXED))
        assert await written(10) == POLICIES
        (message,) = server.messages()
        assert message.endswith(" The policy can be removed.")
        statuses = [each["status"] for each in server.stored["settlepolicies"].values()]
        assert {status["matchedNamespaces"] for status in statuses} == {3}
        assert await written(3600) == []


@stepped
async def test_policy_is_not_validated_again_when_its_status_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    validated = []

    def count(document: Any) -> Any:
        validated.append(document["metadata"]["name"])
        return parse_policy(document)

    monkeypatch.setattr("webhook.cluster.policy_object.parse_policy", count)

    async with writing() as (server, written):
        assert await written(10) == POLICIES
        document = policy_document("policy-0", priority=5)
        document["metadata"] |= {"uid": "policy-0", "generation": 2}
        server.store("settlepolicies", document)
        assert await written(10) == ["policy-0"]
    assert sorted(validated) == sorted([*POLICIES, "policy-0"])


@stepped
async def test_burst_of_policies_is_processed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    processed = 0

    def count(policies: Any) -> Any:
        nonlocal processed
        processed += 1
        return webhook_selectors(policies)

    async with writing() as (server, written):
        assert await written(10) == POLICIES
        monkeypatch.setattr("webhook.cluster.kube_source.webhook_selectors", count)
        writes = []
        for number in range(100):
            document = policy_document(f"new-{number:02}")
            document["metadata"] |= {"uid": "u", "generation": 1}
            server.store("settlepolicies", document)
            writes += await written(0.01)
        assert 1 <= processed <= 3
        writes += await written(10)
        # Each policy is in force when its status says so.
        assert sorted(writes) == sorted(server.stored["settlepolicies"].keys() - set(POLICIES))


@pytest.mark.parametrize(
    "changed",
    [
        {"metadata": {"name": "p", "uid": "recreated", "generation": 1}},
        {"metadata": {"name": "p", "uid": "u", "generation": 2}},
        {"spec": policy_document(action="Mutate")["spec"]},  # Another default of the CRD.
    ],
    ids=["uid", "generation", "spec"],
)
def test_policy_that_is_another_one_is_validated(changed: Any) -> None:
    document = policy_document()
    document["metadata"] |= {"uid": "u", "generation": 1}
    known = read_policy(document)
    assert read_policy({**document, "status": {"a": "b"}}, {"p": known}) is known
    assert known.status == {"a": "b"}
    assert read_policy({**document, **changed}, {"p": known}) is not known


@stepped
async def test_message_that_could_not_be_written_is_written_as_soon_as_it_can_be() -> None:
    async with writing() as (server, written):
        await written(10)
        server.store("nodes", node("n0"))
        await written(70)
        server.refuses = True
        server.store("nodes", node("n1"))
        assert await written(10) == []
        server.refuses = False
        assert await written(2) == POLICIES
