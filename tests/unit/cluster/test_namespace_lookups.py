"""Look-ups of namespaces while a client invents names, without a running watch."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.support.stepped_loop import stepped
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError
from webhook.cluster.kube_source import KubernetesSource
from webhook.cluster.source import NamespaceLookup

ATTACKER, API_SERVER = "10.0.0.66", "10.0.0.1"
SECONDS = 0.5


class SlowApiServer:
    """An API server that takes 5 ms for each request."""

    url = "https://10.0.0.1:6443"

    def __init__(self) -> None:
        self.namespaces: set[str] = set()
        self.requests = 0

    async def request(self, _method: str, path: str, **_options: Any) -> Any:
        self.requests += 1
        await asyncio.sleep(0.005)
        name = path.rpartition("/")[2]
        if name not in self.namespaces:
            raise ApiError(404, f"namespaces {name!r} not found")
        return {"kind": "PartialObjectMetadata", "metadata": {"name": name}}


@stepped
async def test_invented_namespaces_leave_look_ups_to_other_clients(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = SlowApiServer()
    source = KubernetesSource(cast(ApiServer, server))
    attacks = 0

    async def attack(connection: int) -> None:
        """Send the next review after the answer to the last one, for a second."""
        nonlocal attacks
        loop = asyncio.get_running_loop()
        end = loop.time() + 1.0
        while loop.time() < end:
            attacks += 1
            name = f"invented-{connection}-{attacks}"
            await source.fetch_namespace(name, ATTACKER, SECONDS)
            await asyncio.sleep(0.01)

    async def create_pods() -> None:
        for number in range(100):
            name = f"new-{number}"
            server.namespaces.add(name)
            start = asyncio.get_running_loop().time()
            lookup = await source.fetch_namespace(name, API_SERVER, SECONDS)
            assert lookup is NamespaceLookup.FOUND
            assert asyncio.get_running_loop().time() - start < 0.1
            await asyncio.sleep(0.01)

    await asyncio.gather(create_pods(), *map(attack, range(100)))
    assert attacks > 1000
    # Those of the API server, and 160 a second until the attacker's last review is answered.
    assert server.requests < 100 + 250
    assert f"for the client {ATTACKER}: " in caplog.text
    assert len(caplog.records) < attacks / 20


@stepped
async def test_failed_look_up_of_one_client_does_not_count_for_another() -> None:
    """A client could guess the name of a namespace before it is created."""
    server = SlowApiServer()
    source = KubernetesSource(cast(ApiServer, server))
    early = source.fetch_namespace("ci-7", ATTACKER, SECONDS)
    assert await early is NamespaceLookup.MISSING
    server.namespaces.add("ci-7")
    lookup = await source.fetch_namespace("ci-7", API_SERVER, SECONDS)
    assert lookup is NamespaceLookup.FOUND


@stepped
async def test_failed_look_up_is_not_repeated_at_once() -> None:
    server = SlowApiServer()
    source = KubernetesSource(cast(ApiServer, server))
    for _ in range(3):
        lookup = await source.fetch_namespace("ci-7", API_SERVER, SECONDS)
        assert lookup is NamespaceLookup.MISSING
    assert server.requests == 1
