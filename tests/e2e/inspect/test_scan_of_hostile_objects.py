"""`podsettle scan` of a real API server whose tenants write long texts where it accepts them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.factories import Json, policy_document
from tests.support.kube.cluster import KubeCluster
from tests.support.live_cluster import add_node
from tests.support.measured_command import MAX_SECONDS, measured
from tests.support.policy_objects import POLICIES, install_crd

pytestmark = pytest.mark.slow

MAX_MEMORY_KIB = 150 * 1024
COUNT = 150
LONG = 700_000


def pod(number: int) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "uid": f"u{number}"}
    return {
        "metadata": {
            "name": f"p{number}",
            "namespace": "ci",
            "ownerReferences": [{**owner, "name": f"{number}-{'x' * LONG}"}],
        },
        "spec": {
            "nodeName": "crio",
            "initContainers": [{"name": "i", "image": "i", "command": ["/i"]}],
            "containers": [{"name": "main", "image": "i", "command": ["/m"]}],
        },
    }


def event(number: int) -> Json:
    time = "0001-01-02T00:00:00Z" if number % 2 else "9999-12-31T23:59:59Z"
    return {
        "metadata": {"name": f"e{number}", "namespace": "ci", "annotations": {"a": "y" * 200_000}},
        "involvedObject": {
            "kind": "Pod",
            "namespace": "ci",
            "name": f"q{number}",
            "uid": f"{number}-{'u' * 200_000}",
            "fieldPath": "p" * 200_000,
        },
        "reason": "VolumePermissionChangeInProgress",
        "message": "Setting volume ownership is taking longer than expected, consider using "
        f"OnRootMismatch {'m' * 100_000}",
        "firstTimestamp": time,
        "lastTimestamp": time,
    }


@pytest.fixture(scope="module")
def hostile() -> Iterator[KubeCluster]:
    with KubeCluster.start() as cluster:
        install_crd(cluster)
        cluster.create(POLICIES, policy_document("wide"))
        add_node(cluster, "crio", "cri-o://1.33.5")
        cluster.namespace("ci")
        for number in range(COUNT):
            assert cluster.create_pod(pod(number)).status == 201
            cluster.create("/api/v1/namespaces/ci/events", event(number))
        yield cluster


@pytest.mark.parametrize("output", ["json", "html"])
def test_scan_takes_little_memory_and_prints_little(
    hostile: KubeCluster, tmp_path: Path, output: str
) -> None:
    done = measured(hostile, tmp_path, "scan", "-o", output)
    assert done.code == 1
    assert done.peak_kib < MAX_MEMORY_KIB
    assert done.seconds < MAX_SECONDS
    assert len(done.output) < 500 * 1024
    if output == "json":
        report = json.loads(done.output)
        assert report["pods"] == COUNT
        (events,) = (each for each in report["areas"] if each["name"] == "events")
        assert "more than" not in events["why"]
