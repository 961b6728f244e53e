"""Tests of fsGroupChangePolicy on a real API server, which keeps the field that podsettle sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.e2e_pods import create, fresh, normal
from tests.support.kube.cluster import Json, KubeCluster
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


def database(security: Json, **spec: object) -> Json:
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
            "volumes": [CLAIM],
            **spec,
        },
    }


@pytest.fixture(scope="module")
def baseline(cluster: KubeCluster) -> Json:
    """The pod that the API server creates without podsettle."""
    return normal(create(cluster, database({"fsGroup": 1000}), dry_run=True))


@pytest.fixture(scope="module")
def settling(
    cluster: KubeCluster, baseline: Json, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeCluster]:
    assert baseline
    manifests = tmp_path_factory.mktemp("manifests")
    (manifests / "policy.yaml").write_text(POLICY)
    probe = database({"fsGroup": 1000})
    with (
        start_server(manifests, tmp_path_factory.mktemp("certs")) as server,
        registered(cluster, "podsettle", f"{server.url}/mutate", server.ca.read_bytes()),
    ):
        await_that(
            lambda: "annotations" in create(cluster, probe, dry_run=True)["metadata"],
            "the API server calls podsettle",
        )
        yield cluster


def test_pod_with_group_and_claim_is_stored_with_the_policy_and_nothing_else(
    settling: KubeCluster, baseline: Json
) -> None:
    created = create(settling, fresh(database({"fsGroup": 1000})))
    path = f"/api/v1/namespaces/default/pods/{created['metadata']['name']}"
    found = normal(settling.request("GET", path).body)
    assert found["metadata"].pop("annotations") == {
        "podsettle.dev/applied": "many-files/fsGroupChangePolicy",
        "podsettle.dev/settled": "1/0/2/2",
        "podsettle.dev/summary": "The pod is set to fsGroupChangePolicy OnRootMismatch, "
        "by policy many-files.",
    }
    assert found["spec"]["securityContext"].pop("fsGroupChangePolicy") == "OnRootMismatch"
    assert found == baseline


def test_api_server_refuses_the_field_in_a_pod_for_windows(cluster: KubeCluster) -> None:
    """The reason for which podsettle leaves these pods unchanged."""
    security = {"fsGroupChangePolicy": "OnRootMismatch"}
    refused = cluster.create_pod(database(security, os={"name": "windows"}), dry_run=True)
    assert refused.status == 422
    assert "fsGroupChangePolicy: Forbidden" in refused.body["message"]
