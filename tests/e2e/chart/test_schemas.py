"""The chart's objects, validated against the schemas of a real API server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.helm import CRDS, VALUES, Json, objects, run, template
from tests.support.kube.cluster import KubeCluster
from tests.support.kube_schemas import LOCATION, write_builtin, write_custom
from tests.support.paths import CHART

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="module")
def schemas(cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("schemas")
    write_builtin(cluster, directory)
    write_custom([*CRDS.values(), *(CHART / "crds").glob("*.yaml")], directory)
    return directory


@pytest.mark.parametrize("values", VALUES)
def test_kubeconform_accepts_every_rendered_object(schemas: Path, values: str) -> None:
    done = _kubeconform(schemas, template("--values", VALUES[values]))
    assert not [each for each in done["resources"] if each["status"] != "statusValid"]
    assert done["summary"] == {
        "valid": len(objects(values)),
        "invalid": 0,
        "errors": 0,
        "skipped": 0,
    }


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("Deployment", {"spec": {"replica": 1}}),
        ("Deployment", {"spec": {"replicas": "1"}}),
        ("SettlePolicy", {"spec": {"remedies": {"postInitSleeps": {}}}}),
        ("Certificate", {"spec": {"duratoin": "1h"}}),
        ("PrometheusRule", {"spec": {"groups": [{"name": "a", "rules": [{"expression": "1"}]}]}}),
        ("Unheard", {}),
    ],
)
def test_kubeconform_rejects_an_object_with_a_mistake(
    schemas: Path, kind: str, wrong: Json
) -> None:
    found = [each for each in objects("everything") if each["kind"] == kind]
    spoilt = found[0] if found else {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}}
    spoilt = spoilt | {"spec": spoilt.get("spec", {}) | wrong.get("spec", {})}
    summary = _kubeconform(schemas, json.dumps(spoilt))["summary"]
    assert summary["invalid"] + summary["errors"] == 1


def _kubeconform(schemas: Path, manifests: str) -> Json:
    location = f"{schemas}/{LOCATION}"
    flags = ("-strict", "-summary", "-output", "json", "-schema-location", location)
    done = run("kubeconform", *flags, input=manifests)
    assert not done.stderr, done.stderr
    answer: Json = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("values", VALUES)
def test_rendered_pods_pass_the_restricted_pod_security_standard(
    cluster: KubeCluster, values: str
) -> None:
    accounts = ("default", "podsettle", "settle")
    namespace = cluster.namespace("chart-", labels=RESTRICTED, service_accounts=accounts)
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
