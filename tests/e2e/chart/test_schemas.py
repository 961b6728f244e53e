"""The chart's objects, validated by a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from tests.support.helm import CRDS, NAMESPACE, VALUES, Json, objects
from tests.support.kube.cluster import KubeCluster
from tests.support.kube.custom_resources import create_crd
from tests.support.policy_objects import install_crd

ACCOUNTS = ("default", "podsettle", "settle")
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    """A cluster that serves every kind of the chart."""
    with KubeCluster.start() as started:
        for name in (NAMESPACE, "builds", "ci"):
            started.namespace(name, service_accounts=ACCOUNTS)
        install_crd(started)
        for path in CRDS.values():
            create_crd(started, yaml.safe_load(path.read_text()))
        yield started


def problems(cluster: KubeCluster, *documents: Json) -> str:
    """Return what the API server says against objects, which it does not store."""
    flags = ("--server-side", "--dry-run=server", "--validate=strict")
    done = cluster.kubectl("apply", *flags, "-f", "-", input=yaml.safe_dump_all(documents))
    assert done.stderr or done.stdout.count(" (server dry run)") == len(documents)
    return done.stderr


@pytest.mark.parametrize("values", VALUES)
def test_api_server_accepts_every_rendered_object(cluster: KubeCluster, values: str) -> None:
    assert problems(cluster, *objects(values)) == ""


@pytest.mark.parametrize(
    ("kind", "wrong", "problem"),
    [
        ("Deployment", {"replica": 1}, ".spec.replica: field not declared"),
        ("Deployment", {"replicas": "1"}, ".spec.replicas: expected numeric"),
        ("SettlePolicy", {"remedies": {"postInitSleeps": {}}}, "postInitSleeps"),
        ("Certificate", {"duratoin": "1h"}, ".spec.duratoin: field not declared"),
        ("PrometheusRule", {"groups": [{"name": "a", "rules": [{"expression": "1"}]}]}, "expr"),
    ],
)
def test_api_server_refuses_an_object_with_a_mistake(
    cluster: KubeCluster, kind: str, wrong: Json, problem: str
) -> None:
    found = next(each for each in objects("everything") if each["kind"] == kind)
    assert problem in problems(cluster, found | {"spec": found["spec"] | wrong})


@pytest.mark.parametrize("values", VALUES)
def test_rendered_pods_pass_the_restricted_pod_security_standard(
    cluster: KubeCluster, values: str
) -> None:
    namespace = cluster.namespace("chart-", labels=RESTRICTED, service_accounts=ACCOUNTS)
    created = []
    for each in objects(values):
        spec = each["spec"]["template"] if each["kind"] == "Deployment" else each
        if each["kind"] in ("Deployment", "Pod"):
            pod = {"apiVersion": "v1", "kind": "Pod", "spec": spec["spec"]}
            pod["metadata"] = {"generateName": "pod-", "namespace": namespace}
            status, answer, warnings = cluster.create_pod(pod)
            assert status == 201, answer
            assert not warnings
            created.append(answer["spec"])
    assert len(created) == (2 if values == "everything" else 1)
    for spec in created:
        # OpenShift assigns the user. On other clusters, the image's user applies.
        assert "runAsUser" not in json.dumps(spec)
        for container in spec["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert container["resources"]["limits"].keys() == {"cpu", "memory"}
