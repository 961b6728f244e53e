"""Test of an upgrade from an older chart and its podsettle with policies in place, and back.

The commands are those of docs/install.md. Helm does not upgrade CRDs, so one of them does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkout import checked_out
from tests.support.e2e_pods import create, is_called, normal, simple_pod
from tests.support.factories import Json
from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    POLICIES,
    RELEASE,
    ROUTING,
    Installation,
    Replica,
    installed,
    policy,
)
from tests.support.kube.cluster import KubeCluster
from tests.support.pod_load import creating_pods
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
OLD = "4207e51d9add2b446881c7024e1cbe779a4bd7d3"
# Every remedy that the older chart's CRD has.
REMEDIES: Json = {
    "postInitSleep": {"when": "Always"},
    "retryInitExit255": {"when": "Always", "initContainers": ["prepare"]},
    "kubeletGate": {"when": "Always", "timeout": "20s"},
    "skipSELinuxRelabel": {"when": "Always", "pods": "All"},
    "seLinuxChangePolicy": "Recursive",
    "fsGroupChangePolicy": "OnRootMismatch",
}
# One that it does not have.
START_GATE = policy("later", remedies={"startGate": {"waitFor": [{"tcp": "192.0.2.1:80"}]}})


@pytest.fixture
def old() -> Iterator[Path]:
    with checked_out(OLD) as tree:
        yield tree


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Installation]:
    with KubeCluster.start(ROUTING) as cluster, installed(cluster, tmp_path) as installation:
        yield installation


def replace(release: Installation, before: Replica, sources: Path | None = None) -> Replica:
    """Replace a replica by one of the installed chart, as a rollout does."""
    replica = release.launch(sources=sources)
    await_that(replica.is_ready, f"{replica.log} is ready")
    release.admit(replica)
    release.retire(before)
    return replica


def specs(release: Installation) -> dict[str, Json]:
    return {each["metadata"]["name"]: each["spec"] for each in release.get(POLICIES)["items"]}


def crd_conditions(release: Installation) -> set[str]:
    """Return the status of the condition CRDCurrent of all policies."""
    return {
        condition["status"]
        for each in release.get(POLICIES)["items"]
        for condition in each.get("status", {}).get("conditions", ())
        if condition["type"] == "CRDCurrent"
    }


def test_documented_upgrade_keeps_policies_and_settled_pods_and_can_be_rolled_back(
    release: Installation, old: Path
) -> None:
    cluster = release.cluster
    release.install(chart=old / "charts/podsettle")
    replica = release.launch(sources=old)
    await_that(replica.is_ready, f"{replica.log} is ready")
    release.admit(replica)
    wide = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
    cluster.create(POLICIES, policy("wide", **wide, remedies=REMEDIES))
    cluster.create(POLICIES, policy("opt-in"))
    chosen = cluster.namespace("chosen-", labels={"podsettle.dev/policy": "opt-in"})
    selected = cluster.namespace("selected-", labels={"team": "a"})
    for namespace in (chosen, selected):
        await_that(lambda n=namespace: is_called(cluster, n), "the namespace is covered")  # type: ignore[misc]
    assert cluster.request("POST", POLICIES, START_GATE).status == 422
    stored, written = specs(release), release.written_by_podsettle()
    pods = [create(cluster, simple_pod("settled", each)) for each in (chosen, selected)]

    lease = release.get(LEASES)["items"][0]["metadata"]
    with creating_pods(cluster, simple_pod("pod", chosen), per_second=20) as load:
        release.shell(release.documented("install.md", "Upgrade"))
        release.shell(release.documented("install.md", "Upgrade", 2))
        replica = replace(release, replica)
    assert (load.failed, load.unsettled) == ([], [])
    # The older chart had a Lease of its own, which Helm deletes.
    (created,) = (each["metadata"] for each in release.get(LEASES)["items"])
    assert created["uid"] != lease["uid"]
    assert created["ownerReferences"][0]["kind"] == "Deployment"

    await_that(lambda: crd_conditions(release) == {"True"}, "podsettle finds the CRD current")
    assert specs(release) == stored
    assert {**release.written_by_podsettle(), "holder": ""} == {**written, "holder": ""}
    for pod in pods:
        metadata = {key: pod["metadata"][key] for key in ("namespace", "annotations")}
        again = create(cluster, {**pod, "metadata": {**metadata, "name": "again"}}, dry_run=True)
        assert normal(again) == normal(pod)
        fresh = create(cluster, simple_pod("fresh", metadata["namespace"]), dry_run=True)
        applied = "podsettle.dev/applied"
        assert fresh["metadata"]["annotations"][applied] == metadata["annotations"][applied]
    assert cluster.create(POLICIES, START_GATE)["spec"]["remedies"].keys() == {"startGate"}
    assert len(release.helm("history", RELEASE, "-o", "yaml").split("revision:")) == 3

    # The page's history is longer: its revision is the third.
    rollback = release.documented("install.md", "Upgrade", 3)
    assert " 3 " in rollback
    release.shell(rollback.replace(" 3 ", " 1 "))
    replace(release, replica, old)
    assert {name: specs(release)[name] for name in stored} == stored
    for namespace in (chosen, selected):
        await_that(lambda n=namespace: is_called(cluster, n), "the namespace is covered")  # type: ignore[misc]
