"""Leader election on a real API server, with the rights that the chart grants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.service_accounts import connected_as_an_account_with
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import Unreachable
from webhook.cluster.leader_election import ElectionTimings, LeaderElector

RULES = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["podsettle"],
        "verbs": ["get", "update"],
    }
]


class Place:
    """A namespace for a Lease, and a connection with the rights of podsettle in it.

    `seen` holds the holder in the Lease that each candidate received last, by the candidate's name.
    Requests of the candidates in `killed` fail.
    """

    def __init__(self, cluster: KubeCluster, namespace: str, server: ApiServer) -> None:
        self.cluster, self.namespace, self.server = cluster, namespace, server
        self.seen: dict[str, str] = {}
        self.killed: set[str] = set()
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    def create(self, **spec: Any) -> None:
        self.cluster.create(self.path, {"metadata": {"name": "podsettle"}, "spec": spec})

    def spec(self) -> dict[str, Any]:
        found = self.cluster.request("GET", f"{self.path}/podsettle").body
        spec: dict[str, Any] = found["spec"]
        return spec

    def candidate(self, identity: str, timings: ElectionTimings | None = None) -> LeaderElector:
        timings = timings or ElectionTimings()
        server = cast(ApiServer, CandidateConnection(self, identity))
        return LeaderElector(server, self.namespace, "podsettle", identity, timings)


class CandidateConnection:
    """The connection of a place, for the requests of one candidate."""

    def __init__(self, place: Place, identity: str) -> None:
        self._place, self._identity = place, identity

    async def request(self, method: str, path: str, *further: Any, **options: Any) -> Any:
        if self._identity in self._place.killed:
            raise Unreachable("killed")
        lease = await self._place.server.request(method, path, *further, **options)
        self._place.seen[self._identity] = lease.get("spec", {}).get("holderIdentity", "")
        return lease


@pytest.fixture
async def place(cluster: KubeCluster, tmp_path: Path) -> AsyncIterator[Place]:
    namespace = cluster.namespace("leases-")
    async with connected_as_an_account_with(cluster, namespace, RULES, tmp_path) as server:
        yield Place(cluster, namespace, server)


# The same proportions in a fifth of the time. The release has more: 0.4 s can be too short here.
FAST = ElectionTimings(3.0, 2.0, 0.4, release_timeout_seconds=10.0)


async def test_free_lease_is_acquired_and_renewed(place: Place) -> None:
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


async def test_next_replica_leads_as_soon_as_the_leader_leaves(place: Place) -> None:
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


async def test_killed_leader_is_replaced_without_two_leaders_at_once(place: Place) -> None:
    place.create()
    one, two = place.candidate("one", FAST), place.candidate("two", FAST)
    async with one.running():
        await eventually(lambda: one.is_leader)
        async with two.running():
            await eventually(lambda: place.seen.get("two") == "one")
            # From now on it neither renews nor releases the Lease.
            place.killed.add("one")

            def followed() -> bool:
                assert not (one.is_leader and two.is_leader)
                return two.is_leader

            await eventually(followed)
            assert not one.is_leader
            assert place.spec()["holderIdentity"] == "two"


async def test_disconnected_leader_stops_before_the_next_one_starts(
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
            one = LeaderElector(server, place.namespace, "podsettle", "one", FAST)
            two = place.candidate("two", FAST)
            async with one.running():
                await eventually(lambda: one.is_leader)
                async with two.running():
                    await eventually(lambda: place.seen.get("two") == "one")
                    # From now on its requests are lost, without an error.
                    tcp_proxy.target = ("192.0.2.1", 9)
                    tcp_proxy.freeze()

                    def followed() -> bool:
                        assert not (one.is_leader and two.is_leader)
                        return two.is_leader

                    await eventually(followed)
            assert place.spec()["holderIdentity"] == ""


async def test_renewed_lease_stays_with_its_holder_despite_old_timestamps(place: Place) -> None:
    long_ago = "2001-01-01T00:00:{:02}.000000Z"
    place.create(
        holderIdentity="other",
        leaseDurationSeconds=5,
        leaseTransitions=7,
        renewTime=long_ago.format(0),
    )
    one = place.candidate("one", FAST)
    async with one.running():
        for second in range(1, 13):
            renewed = {"spec": {"renewTime": long_ago.format(second)}}
            place.cluster.request("PATCH", f"{place.path}/podsettle", renewed)
            await asyncio.sleep(0.5)
            assert not one.is_leader
        await eventually(lambda: one.is_leader)
        assert place.spec()["leaseTransitions"] == 8


async def test_leader_stops_when_another_holder_is_written_into_the_lease(place: Place) -> None:
    place.create()
    one = place.candidate("one", FAST)
    async with one.running():
        await eventually(lambda: one.is_leader)
        taken = {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600}}
        place.cluster.request("PATCH", f"{place.path}/podsettle", taken)
        await eventually(lambda: place.seen.get("one") == "other")
        # At once, before the renew deadline.
        assert not one.is_leader
        assert one.problem == ""
    assert place.spec()["holderIdentity"] == "other"


async def test_missing_lease_is_reported_and_not_created(place: Place) -> None:
    one = place.candidate("one")
    async with one.running():
        await eventually(lambda: one.problem)
        assert one.problem.startswith(f"Lease {place.namespace}/podsettle: 404: ")
        assert not one.is_leader
        place.create()
        await eventually(lambda: one.is_leader)
        assert one.problem == ""


async def test_no_task_remains_after_the_election(place: Place) -> None:
    place.create()
    for name in ("one", "two"):
        async with place.candidate(name).running():
            pass
    assert len(asyncio.all_tasks()) == 1
