"""One of several processes holds the Lease, on a real API server and with the chart's rights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.service_accounts import connected_as_an_account_with
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually
from webhook.cluster import leader_election as module
from webhook.cluster.client import ApiServer
from webhook.cluster.leader_election import LeaderElector

RULES = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["podsettle"],
        "verbs": ["get", "update"],
    }
]


class Place:
    """A namespace, and the connection of an account in it."""

    def __init__(self, cluster: KubeCluster, namespace: str, server: ApiServer) -> None:
        self.cluster, self.namespace, self.server = cluster, namespace, server
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    def create(self, **spec: Any) -> None:
        self.cluster.create(self.path, {"metadata": {"name": "podsettle"}, "spec": spec})

    def spec(self) -> dict[str, Any]:
        found = self.cluster.request("GET", f"{self.path}/podsettle").body
        spec: dict[str, Any] = found["spec"]
        return spec

    def candidate(self, identity: str) -> LeaderElector:
        return LeaderElector(self.server, self.namespace, "podsettle", identity)


@pytest.fixture
async def place(cluster: KubeCluster, tmp_path: Path) -> AsyncIterator[Place]:
    namespace = cluster.namespace("leases-")
    async with connected_as_an_account_with(cluster, namespace, RULES, tmp_path) as server:
        yield Place(cluster, namespace, server)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same proportions in a fifth of the time."""
    for name, seconds in {
        "_LEASE_DURATION_SECONDS": 3,
        "_RENEW_DEADLINE_SECONDS": 2,
        "_RETRY_PERIOD_SECONDS": 0.4,
    }.items():
        monkeypatch.setattr(module, name, float(seconds))


def abandon(lease: LeaderElector) -> asyncio.Task[None]:
    """Run it without the end that gives the Lease up, as a process that is killed has it."""
    return asyncio.create_task(lease._run())


async def test_one_that_nobody_holds_is_taken_and_renewed(place: Place) -> None:
    place.create()
    one = place.candidate("one")
    assert not one.is_leader
    async with one.running():
        await eventually(lambda: one.is_leader)
        first = place.spec()
        assert first["holderIdentity"] == "one"
        assert first["leaseDurationSeconds"] == 15
        assert first["leaseTransitions"] == 1
        age = datetime.now(UTC) - datetime.fromisoformat(first["acquireTime"])
        assert abs(age) < timedelta(minutes=1)
        await eventually(lambda: place.spec()["renewTime"] > first["renewTime"])
        assert place.spec()["acquireTime"] == first["acquireTime"]
        assert place.spec()["leaseTransitions"] == 1
    assert not one.is_leader
    assert place.spec()["holderIdentity"] == ""


async def test_one_of_three_holds_it_and_the_next_as_soon_as_it_leaves(place: Place) -> None:
    place.create()
    candidates = [place.candidate(name) for name in ("one", "two", "three")]
    async with AsyncExitStack() as stack:
        blocks = {}
        for lease in candidates:
            blocks[lease] = await stack.enter_async_context(AsyncExitStack())
            await blocks[lease].enter_async_context(lease.running())
        for left in (3, 2, 1):
            await eventually(lambda: any(lease.is_leader for lease in candidates))
            holders = [lease for lease in candidates if lease.is_leader]
            assert len(holders) == 1
            await blocks[holders[0]].aclose()
            candidates.remove(holders[0])
            assert len(candidates) == left - 1
    assert place.spec()["leaseTransitions"] == 3


@pytest.mark.usefixtures("hasty")
async def test_a_killed_holder_is_followed_and_never_are_there_two(place: Place) -> None:
    place.create()
    one, two = place.candidate("one"), place.candidate("two")
    killed = abandon(one)
    await eventually(lambda: one.is_leader)
    async with two.running():
        await eventually(lambda: two._last_spec.get("holderIdentity") == "one")
        killed.cancel()

        def followed() -> bool:
            assert not (one.is_leader and two.is_leader)
            return two.is_leader

        await eventually(followed)
        assert not one.is_leader
        assert place.spec()["holderIdentity"] == "two"


@pytest.mark.usefixtures("hasty")
async def test_a_holder_without_its_api_server_stops_before_another_may_begin(
    cluster: KubeCluster, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create()
    far = urlsplit(cluster.url)
    with TcpProxy.to(far.hostname or "", far.port or 0) as tcp_proxy:
        configuration = json.loads(cluster.kubeconfig.read_text())
        configuration["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{tcp_proxy.port}"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(configuration))
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        async with await ApiServer.connect() as server:
            one = LeaderElector(server, place.namespace, "podsettle", "one")
            two = place.candidate("two")
            async with one.running():
                await eventually(lambda: one.is_leader)
                async with two.running():
                    await eventually(lambda: two._last_spec.get("holderIdentity") == "one")
                    # Whatever it sends from now on is lost, and nothing tells it.
                    tcp_proxy.target = ("192.0.2.1", 9)
                    tcp_proxy.freeze()

                    def followed() -> bool:
                        assert not (one.is_leader and two.is_leader)
                        return two.is_leader

                    await eventually(followed)
                    # Giving the Lease up has as long for an answer, and 0.4 s is short.
                    monkeypatch.setattr(module, "_RETRY_PERIOD_SECONDS", 10.0)
            assert place.spec()["holderIdentity"] == ""


@pytest.mark.usefixtures("hasty")
async def test_a_holder_that_renews_is_left_alone_whatever_its_clock_says(place: Place) -> None:
    long_ago = "2001-01-01T00:00:{:02}.000000Z"
    place.create(
        holderIdentity="other",
        leaseDurationSeconds=5,
        leaseTransitions=7,
        renewTime=long_ago.format(0),
    )
    one = place.candidate("one")
    async with one.running():
        for second in range(1, 13):
            renewed = {"spec": {"renewTime": long_ago.format(second)}}
            place.cluster.request("PATCH", f"{place.path}/podsettle", renewed)
            await asyncio.sleep(0.5)
            assert not one.is_leader
        await eventually(lambda: one.is_leader)
        assert place.spec()["leaseTransitions"] == 8


@pytest.mark.usefixtures("hasty")
async def test_one_that_somebody_takes_by_force_is_held_no_longer(place: Place) -> None:
    place.create()
    one = place.candidate("one")
    async with one.running():
        await eventually(lambda: one.is_leader)
        taken = {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600}}
        place.cluster.request("PATCH", f"{place.path}/podsettle", taken)
        await eventually(lambda: one._last_spec.get("holderIdentity") == "other")
        # At once, and not only when the time for renewing is up.
        assert not one.is_leader
        assert one.problem == ""
    assert place.spec()["holderIdentity"] == "other"


async def test_one_that_is_not_there_is_told_of_and_not_made(place: Place) -> None:
    one = place.candidate("one")
    async with one.running():
        await eventually(lambda: one.problem)
        assert one.problem.startswith(f"Lease {place.namespace}/podsettle: 404: ")
        assert not one.is_leader
        place.create()
        await eventually(lambda: one.is_leader)
        assert one.problem == ""


async def test_nothing_is_left_behind(place: Place) -> None:
    place.create()
    for name in ("one", "two"):
        async with place.candidate(name).running():
            pass
    assert len(asyncio.all_tasks()) == 1
