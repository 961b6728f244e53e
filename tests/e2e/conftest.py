"""Fixtures: a real API server, and podsettle registered with it by failurePolicy Fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.support.e2e_pods import HEAVY, is_called
from tests.support.factories import node
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.kube.fixtures import prepare_for_fixture_pods
from tests.support.process import RunningServer, start_server
from tests.support.registered_webhook import registered
from tests.support.reviews import PODS, load_pod
from tests.support.waiting import await_that
from tools.kube_versions import server_minor

POLICIES = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: settle}
spec:
  namespaceSelector: {}
  podSelector: {matchExpressions: [{key: test-delivery, operator: DoesNotExist}]}
  remedies:
    runtimeClass: {name: heavy}
    skipSELinuxRelabel: {}
    postInitSleep: {when: Always, containers: ["*"]}
---
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: by-image-volume}
spec:
  namespaceSelector: {}
  podSelector: {matchLabels: {test-delivery: image-volume}}
  remedies:
    postInitSleep: {when: Always, delivery: ImageVolume}
---
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: class-that-is-missing}
spec:
  podSelector: {matchLabels: {test-delivery: missing-class}}
  namespaceSelector: {}
  remedies:
    runtimeClass: {name: none-such}
"""


NODE: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    # Of the API server's release, at most 1.35: from 1.36 on, Auto would choose image volumes.
    **node("worker", "containerd://2.1.5", f"v1.{min(server_minor(), 35)}.0", {"heavy": "true"}),
}
OFF = {"podsettle.dev/enabled": "false"}


@pytest.fixture(scope="session")
def cluster() -> Iterator[KubeCluster]:
    """A cluster that all tests of a worker share, because each takes 3 s and 330 MiB."""
    with KubeCluster.start() as started:
        yield started


@pytest.fixture(scope="module")
def baselines(cluster: KubeCluster) -> dict[str, Json]:
    """What the API server makes of each fixture pod without any webhook."""
    prepare_for_fixture_pods(cluster)
    made = {}
    for path in PODS:
        status, made[path.stem], warnings = cluster.create_pod(load_pod(path), dry_run=True)
        assert status == 201, made[path.stem]
        assert not [warning for warning in warnings if "unknown field" in warning]
    return made


@pytest.fixture(scope="module")
def podsettle_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    manifests = tmp_path_factory.mktemp("manifests")
    off = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "off", "labels": OFF}}
    documents = [*yaml.safe_load_all(POLICIES), HEAVY, NODE, off]
    (manifests / "all.yaml").write_text(yaml.safe_dump_all(documents))
    with start_server(manifests, tmp_path_factory.mktemp("certs")) as server:
        yield server


@pytest.fixture(scope="module")
def settling(
    cluster: KubeCluster, podsettle_server: RunningServer, baselines: dict[str, Json]
) -> Iterator[KubeCluster]:
    """The cluster with podsettle registered, and every fixture pod's baseline taken before."""
    assert len(baselines) == len(PODS)
    # Another module of this worker may have created it.
    created = cluster.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", HEAVY)
    assert created.status in (201, 409), created.body
    cluster.namespace("off", labels=OFF)
    with registered(
        cluster, "podsettle", f"{podsettle_server.url}/mutate", podsettle_server.ca.read_bytes()
    ):
        await_that(lambda: is_called(cluster), "the API server calls podsettle")
        yield cluster
