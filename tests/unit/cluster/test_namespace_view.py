"""The view of namespaces while look-ups and the events of the watch arrive in any order."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, cast

import pytest

from tests.support.stepped_loop import stepped
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError
from webhook.cluster.kube_source import KubernetesSource
from webhook.cluster.raw_responses import decode_page
from webhook.cluster.source import NamespaceLookup
from webhook.core.cluster.view import Namespace
from webhook.core.policy.snapshot import Snapshot

SEQUENCES, STEPS = 60, 40
NAMES = "ci-1", "ci-2"


class LateApiServer:
    """An API server with namespaces, whose events and answers arrive when a test delivers them."""

    url = "https://10.0.0.1:6443"

    def __init__(self, version_prefix: str) -> None:
        self.existing: dict[str, Any] = {}
        self.watching = asyncio.Event()
        self.answers: deque[asyncio.Event] = deque()
        """What each request for a namespace, which has read its object already, waits for."""
        self._version = 1
        self._version_prefix = version_prefix
        self._events: deque[Any] = deque()
        self._delivered: asyncio.Queue[bytes] = asyncio.Queue()

    def write(self, name: str) -> None:
        """Create a namespace, or change its label."""
        kind = "MODIFIED" if name in self.existing else "ADDED"
        self.existing[name] = {
            "metadata": {"name": name, "labels": {"version": str(self._version + 1)}}
        }
        self._change(kind, self.existing[name])

    def delete(self, name: str) -> None:
        if name in self.existing:
            self._change("DELETED", self.existing.pop(name))

    def _change(self, kind: str, document: Any) -> None:
        self._version += 1
        document = {"metadata": {**document["metadata"], "resourceVersion": self._shown_version}}
        if document["metadata"]["name"] in self.existing:
            self.existing[document["metadata"]["name"]] = document
        self._events.append({"type": kind, "object": document})

    @property
    def _shown_version(self) -> str:
        return f"{self._version_prefix}{self._version}"

    def deliver(self) -> bool:
        """Deliver the next event of the watch. Return whether there is one."""
        if self._events:
            self._delivered.put_nowait(json.dumps(self._events.popleft()).encode())
            return True
        return False

    def expire(self) -> None:
        """Answer 410 Gone, so that the reflector lists again."""
        self.watching.clear()
        gone = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
        self._delivered.put_nowait(json.dumps(gone).encode())

    async def request(self, _method: str, path: str, **_options: Any) -> Any:
        document = self.existing.get(path.rpartition("/")[2])
        self.answers.append(asyncio.Event())
        await self.answers[-1].wait()
        if document is None:
            raise ApiError(404, "not found")
        return {"kind": "PartialObjectMetadata", **document}

    async def pages(self, *_arguments: Any) -> AsyncIterator[Any]:
        self._events.clear()
        self._delivered = asyncio.Queue()
        page = {
            "metadata": {"resourceVersion": self._shown_version},
            "items": list(self.existing.values()),
        }
        yield decode_page(json.dumps(page).encode())

    @asynccontextmanager
    async def watch(self, *_arguments: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        self.watching.set()
        yield self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._delivered.get()


class Case:
    """A source whose namespaces are watched, and all views that it had."""

    def __init__(self, version_prefix: str) -> None:
        self.server = LateApiServer(version_prefix)
        self.source = KubernetesSource(cast(ApiServer, self.server))
        self.views: list[tuple[Snapshot, Mapping[str, Namespace]]] = []
        self.source.observers.append(self._record)
        self._lookups: list[asyncio.Task[None]] = []

    def _record(self) -> None:
        self.views.append((self.source.view, dict(self.source.view.namespaces)))

    async def settle(self) -> None:
        await self.server.watching.wait()
        for _ in range(20):
            await asyncio.sleep(0)

    def look_up(self, name: str) -> None:
        """Begin a look-up by a client of its own, for which no failure is remembered."""

        async def look_up(client: str) -> None:
            lookup = await self.source.fetch_namespace(name, client, 3600)
            if lookup is NamespaceLookup.FOUND and name in self.server.existing:
                assert name in self.source.view.namespaces

        task = asyncio.create_task(look_up(f"client-{len(self._lookups)}"))
        self._lookups.append(task)

    async def finish(self) -> None:
        """Deliver everything. The views are then what they were, and the last one is right."""
        while self.server.deliver():
            await self.settle()
        while self.server.answers:
            self.server.answers.popleft().set()
            await self.settle()
        await asyncio.gather(*self._lookups)
        found = {name: each.labels for name, each in self.source.view.namespaces.items()}
        assert found.keys() == self.server.existing.keys()
        for name, document in self.server.existing.items():
            assert document["metadata"]["labels"].items() <= found[name].items()
        for view, namespaces in self.views:
            assert view.namespaces == namespaces


@asynccontextmanager
async def watched(version_prefix: str = "") -> AsyncIterator[Case]:
    """Yield a source that has listed the namespaces. At the end, everything is delivered.

    With `version_prefix`, resource versions are no integers.
    """
    case = Case(version_prefix)
    watching = asyncio.create_task(case.source.namespaces.run())
    await case.settle()
    yield case
    await case.finish()
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


@pytest.mark.parametrize("deleted", ["by the watch", "by the list"])
@stepped
async def test_namespace_deleted_during_its_look_up_is_not_in_the_view(deleted: str) -> None:
    async with watched() as case:
        case.server.write("ci-1")
        case.look_up("ci-1")
        await case.settle()
        case.server.delete("ci-1")
        if deleted == "by the list":
            case.server.expire()
        while case.server.deliver():
            await case.settle()
        await case.settle()
        case.server.answers.popleft().set()
        await case.settle()
        assert not case.source.view.namespaces


@pytest.mark.parametrize("version_prefix", ["", "x", "eyJtIjo=", "1.", "-"])
@stepped
async def test_namespace_is_found_before_the_watch_sees_it_whatever_its_version_looks_like(
    version_prefix: str,
) -> None:
    async with watched(version_prefix) as case:
        case.server.write("ci-1")
        case.look_up("ci-1")
        await case.settle()
        case.server.answers.popleft().set()
        await case.settle()
        assert case.source.view.namespaces.keys() == {"ci-1"}


@stepped
async def test_view_does_not_change_when_a_namespace_is_found_changed_or_deleted() -> None:
    async with watched() as case:
        for name in NAMES:
            case.server.write(name)
        case.look_up("ci-1")
        await case.settle()
        case.server.answers.popleft().set()
        await case.settle()
        found = case.source.view
        assert found.namespaces.keys() == {"ci-1"}
        case.server.write("ci-1")
        case.server.delete("ci-1")
        while case.server.deliver():
            await case.settle()
        assert found.namespaces.keys() == {"ci-1"}
        assert case.source.view.namespaces.keys() == {"ci-2"}


@stepped
async def test_view_is_right_after_events_and_look_ups_in_any_order() -> None:
    async def steps(random: Random, case: Case) -> None:
        for _ in range(STEPS):
            name, server = random.choice(NAMES), case.server
            steps = ("write", "delete", "deliver", "look_up", "answer") * 4
            step = random.choice((*steps, "gone"))
            if step in ("write", "delete"):
                getattr(server, step)(name)
            elif step == "look_up":
                case.look_up(name)
            elif step == "answer" and server.answers:
                server.answers.popleft().set()
            elif step == "deliver":
                server.deliver()
            elif step == "gone":
                server.expire()
            if random.random() < 0.7:
                await case.settle()

    for seed in range(SEQUENCES):
        async with watched() as case:
            await steps(Random(seed), case)
