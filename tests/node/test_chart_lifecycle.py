"""Tests of the chart's life under a real kubelet, with failurePolicy Fail.

Pods are created all the time. A pod that the API server refuses, or that it creates without the
remedy, fails the test. The exception is a replica that is killed with SIGKILL.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from tests.support.e2e_pods import is_called, simple_pod
from tests.support.helm import NAMESPACE
from tests.support.helm_release import OWN, POLICIES, RELEASE, Installation, policy
from tests.support.kube.cluster import Json
from tests.support.node.container_process import container_process
from tests.support.node.node import TIMEOUT_SECONDS, RealNode
from tests.support.node.release import events_on_failure, image_values
from tests.support.paths import CHART
from tests.support.pod_load import Load, creating_pods
from tests.support.waiting import await_that

DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
REPLICAS = f"{OWN}/pods?labelSelector=app.kubernetes.io/component=webhook"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
PER_SECOND = 20
# A second of creations: longer than the API server sends reviews to a replica that is gone. More
# than the client's threads, because a connection to that replica is refused until then.
MAX_IN_FLIGHT = PER_SECOND
# So many more creations after an event show that it had no effect.
MORE_CREATIONS = 40


class Release:
    """The chart's release on a node."""

    def __init__(self, node: RealNode, installation: Installation) -> None:
        self.node = node
        self.cluster = node.cluster
        self.helm = installation.helm
        self.installation = installation
        self.images = (
            *image_values(node),
            "--set=webhook.failurePolicy=Fail,helmTest.enabled=true",
        )

    def replicas(self) -> list[Json]:
        """Return the replicas that are not being deleted, ready or not."""
        found = self.installation.get(REPLICAS)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def is_rolled_out(self) -> bool:
        """Whether all replicas are ready and of the latest template, and no other one is left."""
        found = self.installation.get(DEPLOYMENT)
        status, wanted = found["status"], found["spec"]["replicas"]
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return False
        pods = len(self.installation.get(REPLICAS)["items"])
        return {status.get("updatedReplicas"), status.get("availableReplicas"), pods} == {wanted}

    def await_rollout(self) -> None:
        """Wait until the replicas of earlier templates have ended."""
        with events_on_failure(self.cluster, NAMESPACE):
            await_that(self.is_rolled_out, "the release is rolled out", TIMEOUT_SECONDS)


@pytest.fixture(scope="module")
def release(node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    node.cluster.namespace(NAMESPACE, labels=RESTRICTED)
    installation = Installation(node.cluster, tmp_path_factory.mktemp("release"))
    installed = Release(node, installation)
    installed.helm("install", RELEASE, CHART, *installed.images)
    installed.await_rollout()
    node.cluster.create(POLICIES, policy("wide", namespaceSelector={}))
    await_that(lambda: is_called(node.cluster), "podsettle is called")
    yield installed
    if node.cluster.request("GET", DEPLOYMENT).status == 200:
        installed.helm("uninstall", RELEASE)
    node.cluster.request("DELETE", f"{POLICIES}/wide")


def await_more(load: Load) -> None:
    """Wait until creations that began after this call have ended."""
    before = load.created + len(load.failed)
    await_that(
        lambda: load.created + len(load.failed) > before + MORE_CREATIONS, "pods are created"
    )


def creating(release: Release) -> AbstractContextManager[Load]:
    # Few threads, so that the API server has few connections, and uses each of them.
    pod = simple_pod("pod")
    return creating_pods(release.cluster, pod, per_second=PER_SECOND, threads=4)


def assert_all_settled(load: Load) -> None:
    assert not load.failed, "\n".join(load.failed)
    assert not load.unsettled, "\n".join(load.unsettled)
    assert load.created > MORE_CREATIONS


def test_replicas_run_under_the_restricted_standard_and_helm_test_passes(
    release: Release,
) -> None:
    assert len(release.replicas()) == 2
    for pod in release.replicas():
        (status,) = pod["status"]["containerStatuses"]
        assert status["ready"]
        assert status["restartCount"] == 0
    assert "Succeeded" in release.helm("test", RELEASE)


def test_rollout_restart_under_creations_leaves_no_pod_unsettled(release: Release) -> None:
    before = {pod["metadata"]["uid"] for pod in release.replicas()}
    with creating(release) as load:
        await_more(load)
        restarted = release.cluster.kubectl(
            "-n", NAMESPACE, "rollout", "restart", f"deployment/{RELEASE}"
        )
        assert restarted.returncode == 0, restarted.stderr
        release.await_rollout()
        await_more(load)
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in release.replicas())
    assert_all_settled(load)


def test_upgrade_and_deleted_replica_and_rollback_under_creations_leave_no_pod_unsettled(
    release: Release,
) -> None:
    def levels() -> set[str]:
        pods = release.replicas()
        return {
            arg for pod in pods for arg in pod["spec"]["containers"][0]["args"] if "level" in arg
        }

    with creating(release) as load:
        await_more(load)
        release.helm("upgrade", RELEASE, CHART, *release.images, "--set=log.level=warning")
        release.await_rollout()
        assert levels() == {"--log-level=warning"}

        name = release.replicas()[0]["metadata"]["name"]
        deleted = release.cluster.kubectl("-n", NAMESPACE, "delete", "pod", name, "--wait=false")
        assert deleted.returncode == 0, deleted.stderr
        release.helm("rollback", RELEASE, "1", "--server-side=true", "--force-conflicts")
        release.await_rollout()
        assert levels() == {"--log-level=info"}
        await_more(load)
    assert_all_settled(load)


def test_replica_killed_with_sigkill_fails_only_the_creations_in_flight(release: Release) -> None:
    """The API server does not repeat a call whose connection breaks."""
    killed = release.replicas()[0]
    (before,) = killed["status"]["containerStatuses"]

    def is_restarted(pod: Json) -> bool:
        (status,) = pod["status"]["containerStatuses"]
        return status["restartCount"] > before["restartCount"] and bool(status["ready"])

    with creating(release) as load:
        await_more(load)
        assert not load.failed, "\n".join(load.failed)
        os.kill(container_process(killed, "podsettle"), signal.SIGKILL)
        await_more(load)
        in_flight = list(load.failed)
        release.node.await_pod(NAMESPACE, killed["metadata"]["name"], is_restarted)
        await_more(load)
    assert load.failed == in_flight
    assert len(in_flight) <= MAX_IN_FLIGHT, "\n".join(in_flight)
    assert not load.unsettled, "\n".join(load.unsettled)


def test_uninstall_under_creations_refuses_no_pod(release: Release) -> None:
    with creating(release) as load:
        await_more(load)
        assert load.unsettled == []
        release.installation.shell(release.installation.documented("install.md", "Uninstall"))
        await_that(
            lambda: not release.installation.get(REPLICAS)["items"],
            "the replicas have ended",
            TIMEOUT_SECONDS,
        )
        await_more(load)
    assert not load.failed, "\n".join(load.failed)
    assert len(load.unsettled) > MORE_CREATIONS
    crd = ["CustomResourceDefinition settlepolicies.podsettle.dev"]
    await_that(lambda: release.installation.left() == crd, "only the CRD is left")
