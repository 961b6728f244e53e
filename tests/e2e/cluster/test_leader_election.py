"""Leader election on a real API server, with the rights that the chart grants.

A clock that only the tests advance decides when a Lease expires, so that none expires because the
machine is slow.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.service_accounts import connected_as_an_account_with
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import Unreachable
from webhook.cluster.leader_election import FORMER_LEADER, ElectionTimings, LeaderElector

RULES = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["podsettle"],
        "verbs": ["get", "update"],
    },
    {
        "apiGroups": ["apps"],
        "resources": ["deployments"],
        "resourceNames": ["podsettle"],
        "verbs": ["get"],
    },
]


TIMINGS = ElectionTimings(
    retry_period_seconds=0.05, request_timeout_seconds=60, release_timeout_seconds=60
)
"""The default times by the tests' clock. Requests and retries take real time."""
JUST_BEFORE = 0.125
"""A power of two, which leaves sums exact."""


class Clock:
    """The time that candidates measure, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Place:
    """A namespace for a Lease, and a connection with the rights of podsettle in it.

    `seen` holds the holder in the Lease that each candidate received last, by the candidate's name.
    Requests of the candidates in `killed` fail.
    """

    def __init__(
        self, cluster: KubeCluster, namespace: str, server: ApiServer, clock: Clock
    ) -> None:
        self.cluster, self.namespace, self.server = cluster, namespace, server
        self.clock = clock
        self.seen: dict[str, str] = {}
        self.killed: set[str] = set()
        self.answers: Counter[str] = Counter()
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    def create(self, **spec: Any) -> None:
        self.cluster.create(self.path, {"metadata": {"name": "podsettle"}, "spec": spec})

    def spec(self) -> dict[str, Any]:
        found = self.cluster.request("GET", f"{self.path}/podsettle").body
        spec: dict[str, Any] = found["spec"]
        return spec

    @property
    def deployments(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments"

    def deployment(self) -> dict[str, Any]:
        """Create podsettle's Deployment."""
        labels = {"app": "podsettle"}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "a", "image": "registry.example/a:1"}]},
        }
        spec = {"selector": {"matchLabels": labels}, "template": template}
        return self.cluster.create(
            self.deployments, {"metadata": {"name": "podsettle"}, "spec": spec}
        )

    def metadata(self) -> dict[str, Any]:
        found = self.cluster.request("GET", f"{self.path}/podsettle").body
        metadata: dict[str, Any] = found["metadata"]
        return metadata

    def exists(self) -> bool:
        return self.cluster.request("GET", f"{self.path}/podsettle").status == 200

    def candidate(self, identity: str) -> LeaderElector:
        server = cast(ApiServer, CandidateConnection(self, identity))
        return LeaderElector(server, self.namespace, "podsettle", identity, TIMINGS)

    async def await_attempt(self, identity: str) -> None:
        """Wait until a candidate has read the Lease that there is now, at the time that is now."""
        # The first answer may be to a request that preceded the call.
        enough = self.answers[identity] + 2
        await eventually(lambda: self.answers[identity] >= enough)


class CandidateConnection:
    """The connection of a place, for the requests of one candidate."""

    def __init__(self, place: Place, identity: str) -> None:
        self._place, self._identity = place, identity

    async def request(self, method: str, path: str, *further: Any, **options: Any) -> Any:
        if self._identity in self._place.killed:
            raise Unreachable("killed")
        lease = await self._place.server.request(method, path, *further, **options)
        self._place.seen[self._identity] = lease.get("spec", {}).get("holderIdentity", "")
        self._place.answers[self._identity] += 1
        return lease


@pytest.fixture
async def place(
    cluster: KubeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    clock = Clock()
    monkeypatch.setattr("webhook.cluster.leader_election._now", clock)
    namespace = cluster.namespace("leases-")
    async with connected_as_an_account_with(cluster, namespace, RULES, tmp_path) as server:
        yield Place(cluster, namespace, server, clock)


async def test_free_lease_is_acquired_and_renewed(place: Place) -> None:
    place.create()
    one = place.candidate("one")
    assert not one.is_leader
    begun = datetime.now(UTC)
    async with one.running():
        await eventually(lambda: one.is_leader)
        first = place.spec()
        assert first["holderIdentity"] == "one"
        assert first["leaseDurationSeconds"] == 15
        assert first["leaseTransitions"] == 1
        assert begun <= datetime.fromisoformat(first["acquireTime"]) <= datetime.now(UTC)
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


async def expect_replacement(place: Place, one: LeaderElector, two: LeaderElector) -> None:
    """Check that the leader `one`, which renews no more, stops before `two` starts."""
    for seconds, leads in ((TIMINGS.renew_deadline_seconds, one), (5.0, None)):
        place.clock.now += seconds - JUST_BEFORE
        await place.await_attempt("two")
        assert (one.is_leader, two.is_leader) == (one is leads, False)
        place.clock.now += JUST_BEFORE
        assert not one.is_leader
    await eventually(lambda: two.is_leader)
    assert not one.is_leader


async def test_killed_leader_is_replaced_without_two_leaders_at_once(place: Place) -> None:
    place.create()
    one, two = place.candidate("one"), place.candidate("two")
    async with one.running():
        await eventually(lambda: one.is_leader)
        async with two.running():
            await place.await_attempt("two")
            assert place.seen["two"] == "one"
            # From now on it neither renews nor releases the Lease.
            place.killed.add("one")
            await place.await_attempt("two")
            await expect_replacement(place, one, two)
            assert place.spec()["holderIdentity"] == "two"


async def test_disconnected_leader_stops_before_the_next_one_starts(
    cluster: KubeCluster, place: Place, tmp_path: Path
) -> None:
    place.create()
    with TcpProxy.to("127.0.0.1", cluster.port) as tcp_proxy:
        url = f"https://127.0.0.1:{tcp_proxy.port}"
        kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig", server=url)
        async with await ApiServer.connect(kubeconfig=str(kubeconfig)) as server:
            # Its requests are lost in the end, and so is the release.
            timings = replace(TIMINGS, release_timeout_seconds=0.1)
            one = LeaderElector(server, place.namespace, "podsettle", "one", timings)
            two = place.candidate("two")
            async with one.running():
                await eventually(lambda: one.is_leader)
                async with two.running():
                    await place.await_attempt("two")
                    assert place.seen["two"] == "one"
                    # From now on its requests are lost, without an error.
                    tcp_proxy.targets = [("192.0.2.1", 9)]
                    tcp_proxy.freeze()
                    await place.await_attempt("two")
                    await expect_replacement(place, one, two)
            assert place.spec()["holderIdentity"] == ""


async def test_renewed_lease_stays_with_its_holder_despite_old_timestamps(place: Place) -> None:
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
            await place.await_attempt("one")
            place.clock.now += 5 - JUST_BEFORE
            await place.await_attempt("one")
            assert not one.is_leader
        place.clock.now += JUST_BEFORE
        await eventually(lambda: one.is_leader)
        assert place.spec()["leaseTransitions"] == 8


async def test_leader_stops_when_another_holder_is_written_into_the_lease(place: Place) -> None:
    place.create()
    one = place.candidate("one")
    async with one.running():
        await eventually(lambda: one.is_leader)
        taken = {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600}}
        place.cluster.request("PATCH", f"{place.path}/podsettle", taken)
        await eventually(lambda: place.seen.get("one") == "other")
        # At once, before the renew deadline.
        assert not one.is_leader
        assert one.problem == ""
    assert place.spec()["holderIdentity"] == "other"


async def test_holder_of_a_long_lease_that_does_not_renew_it_is_a_problem(place: Place) -> None:
    place.create(holderIdentity="gone", leaseDurationSeconds=36_000)
    two = place.candidate("two")
    async with two.running():
        await place.await_attempt("two")
        place.clock.now = TIMINGS.lease_duration_seconds
        await place.await_attempt("two")
        assert (two.problem, two.joined) == ("", True)
        place.clock.now += JUST_BEFORE
        await eventually(lambda: two.problem != "")
        lease = f"Lease {place.namespace}/podsettle"
        assert two.problem == f"{lease}: gone holds it for 36000 s, and does not renew it"
        place.cluster.request("PATCH", f"{place.path}/podsettle", {"spec": {"holderIdentity": ""}})
        await eventually(lambda: two.is_leader and not two.problem)


async def test_missing_lease_is_created_for_the_deployment(place: Place) -> None:
    uid = place.deployment()["metadata"]["uid"]
    one = place.candidate("one")
    assert not one.joined
    async with one.running():
        await eventually(lambda: one.is_leader)
        (owner,) = place.metadata()["ownerReferences"]
        assert owner == {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "podsettle",
            "uid": uid,
        }
        # Removed by hand, or by a deployer that prunes it.
        first = place.metadata()["uid"]
        place.cluster.request("DELETE", f"{place.path}/podsettle")
        await eventually(lambda: place.exists() and place.metadata()["uid"] != first)
        await eventually(lambda: one.is_leader)


@pytest.mark.parametrize("seen", [True, False], ids=["holder seen", "later revision"])
async def test_creator_of_a_missing_lease_waits_for_its_former_leader(
    place: Place, seen: bool
) -> None:
    """A leader that is cut off, or that an upgrade replaces, writes until its deadline."""
    one = place.candidate("one")
    if seen:
        place.create(holderIdentity="other", leaseDurationSeconds=15)
    else:
        deployment = place.deployment()
        path = f"{place.deployments}/podsettle"
        place.cluster.request("PATCH", path, {"spec": {"replicas": 3}})
        assert deployment["metadata"]["generation"] == 1
    async with one.running():
        if seen:
            await place.await_attempt("one")
            place.cluster.request("DELETE", f"{place.path}/podsettle")
        await eventually(lambda: place.exists() and place.spec()["holderIdentity"] == FORMER_LEADER)
        await place.await_attempt("one")
        place.clock.now += TIMINGS.lease_duration_seconds - JUST_BEFORE
        await place.await_attempt("one")
        assert not one.is_leader
        place.clock.now += JUST_BEFORE
        await eventually(lambda: one.is_leader)


async def test_lease_without_a_deployment_has_no_owner(place: Place) -> None:
    one, two = place.candidate("one"), place.candidate("two")
    async with one.running(), two.running():
        await eventually(lambda: one.is_leader or two.is_leader)
        await eventually(lambda: one.joined and two.joined)
        assert "ownerReferences" not in place.metadata()


async def test_lease_that_may_not_be_created_is_a_problem(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    rules = [rule for rule in RULES if "create" not in rule["verbs"]]
    namespace = cluster.namespace("leases-")
    async with connected_as_an_account_with(cluster, namespace, rules, tmp_path) as server:
        one = LeaderElector(server, namespace, "podsettle", "one", TIMINGS)
        async with one.running():
            await eventually(lambda: "cannot create resource" in one.problem)
            assert not one.joined


async def test_no_task_remains_after_the_election(place: Place) -> None:
    place.create()
    for name in ("one", "two"):
        async with place.candidate(name).running():
            pass
    assert len(asyncio.all_tasks()) == 1
