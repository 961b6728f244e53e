"""Tests of fsGroupChangePolicy on a real API server, which keeps the field that podsettle sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.e2e_pods import Json, create, fresh, normal
from tests.support.kube.cluster import KubeCluster
from tests.support.process import start_server
from tests.support.registered_webhook import registered
from tests.support.waiting import await_that

POLICY = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: many-files}
spec:
  namespaceSelector: {}
  remedies:
    fsGroupChangePolicy: OnRootMismatch
"""
CLAIM: Json = {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}
EPHEMERAL: Json = {
    "name": "data",
    "ephemeral": {
        "volumeClaimTemplate": {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            }
        }
    },
}
EMPTY_DIR: Json = {"name": "data", "emptyDir": {}}
WINDOWS = {"kubernetes.io/os": "windows"}


def database(volume: Json, security: Json, **spec: object) -> Json:
    """A pod as the StatefulSet controller creates it."""
    mounts = [{"name": "data", "mountPath": "/data"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "db-0",
            "generateName": "db-",
            "namespace": "default",
            "labels": {
                "apps.kubernetes.io/pod-index": "0",
                "statefulset.kubernetes.io/pod-name": "db-0",
            },
        },
        "spec": {
            "containers": [
                {"name": "db", "image": "registry.example/db:1", "volumeMounts": mounts}
            ],
            "hostname": "db-0",
            "securityContext": security,
            "volumes": [volume],
            **spec,
        },
    }


SETTLED: dict[str, tuple[Json, Json]] = {
    "claim": (CLAIM, {"fsGroup": 1000}),
    "ephemeral claim": (EPHEMERAL, {"fsGroup": 1000}),
    "group 0": (CLAIM, {"fsGroup": 0}),
    "further fields": (CLAIM, {"fsGroup": 1000, "supplementalGroups": [1], "runAsUser": 1000}),
}
UNCHANGED = {
    "no group": database(CLAIM, {"runAsUser": 1000}),
    "no security context": database(CLAIM, {}),
    "preset": database(CLAIM, {"fsGroup": 1000, "fsGroupChangePolicy": "Always"}),
    "same value": database(CLAIM, {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}),
    "no claim": database(EMPTY_DIR, {"fsGroup": 1000}),
    "Windows": database(CLAIM, {"fsGroup": 1000}, nodeSelector=WINDOWS),
}


@pytest.fixture(scope="module")
def baselines(cluster: KubeCluster) -> dict[str, Json]:
    """The pods that the API server creates without podsettle."""
    pods = UNCHANGED | {name: database(*parts) for name, parts in SETTLED.items()}
    return {name: normal(create(cluster, pod, dry_run=True)) for name, pod in pods.items()}


@pytest.fixture(scope="module")
def settling(
    cluster: KubeCluster, baselines: dict[str, Json], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeCluster]:
    assert baselines
    manifests = tmp_path_factory.mktemp("manifests")
    (manifests / "policy.yaml").write_text(POLICY)
    probe = database(*SETTLED["claim"])
    with (
        start_server(manifests, tmp_path_factory.mktemp("certs")) as server,
        registered(cluster, "podsettle", f"{server.url}/mutate", server.ca.read_bytes()),
    ):
        await_that(
            lambda: "annotations" in create(cluster, probe, dry_run=True)["metadata"],
            "the API server calls podsettle",
        )
        yield cluster


def stored(cluster: KubeCluster, created: Json) -> Json:
    path = f"/api/v1/namespaces/default/pods/{created['metadata']['name']}"
    return normal(cluster.request("GET", path).body)


@pytest.mark.parametrize("name", SETTLED)
def test_pod_with_group_and_claim_is_stored_with_the_policy_and_nothing_else(
    name: str, settling: KubeCluster, baselines: dict[str, Json]
) -> None:
    found = stored(settling, create(settling, fresh(database(*SETTLED[name]))))
    assert found["metadata"].pop("annotations") == {
        "podsettle.dev/applied": "many-files/fsGroupChangePolicy",
        "podsettle.dev/settled": "1/0/2/2",
        "podsettle.dev/summary": "The pod is set to fsGroupChangePolicy OnRootMismatch, "
        "by policy many-files.",
    }
    assert found["spec"]["securityContext"].pop("fsGroupChangePolicy") == "OnRootMismatch"
    assert found == baselines[name]


@pytest.mark.parametrize("name", UNCHANGED)
def test_pod_that_does_not_need_the_policy_is_stored_unchanged(
    name: str, settling: KubeCluster, baselines: dict[str, Json]
) -> None:
    assert stored(settling, create(settling, fresh(UNCHANGED[name]))) == baselines[name]


def test_api_server_refuses_the_field_in_a_pod_for_windows(cluster: KubeCluster) -> None:
    """The reason for which podsettle leaves these pods unchanged."""
    security = {"fsGroupChangePolicy": "OnRootMismatch"}
    refused = cluster.create_pod(database(CLAIM, security, os={"name": "windows"}), dry_run=True)
    assert refused.status == 422
    assert "fsGroupChangePolicy: Forbidden" in refused.body["message"]
