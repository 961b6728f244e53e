"""Objects that commands and pages print, and the manifests in certs/, on a real API server."""

from __future__ import annotations

import pytest
import yaml

from tests.support.certificate_manifests import CONFIGURATION, documents
from tests.support.kube.cluster import KubeCluster
from tests.support.markdown import Page
from tests.support.node_config import CONTAINERD, CRIO, printed
from tests.support.paths import DOCS
from tests.support.webhook_configuration import PATH, as_the_chart_writes_it


@pytest.mark.parametrize("arguments", [CRIO, (*CRIO, "--node-selector", "a=b"), CONTAINERD])
def test_api_server_accepts_the_runtime_class_of_node_config(
    cluster: KubeCluster, arguments: tuple[str, ...]
) -> None:
    made = yaml.safe_load(printed(*arguments, "-o", "runtimeclass"))
    path = "/apis/node.k8s.io/v1/runtimeclasses?dryRun=All"
    answer = cluster.request("POST", path, made)
    assert answer.status == 201, answer.body
    assert answer.body.get("scheduling") == made.get("scheduling")


def test_api_server_accepts_the_job_that_replaces_pods_with_exit_code_255(
    cluster: KubeCluster,
) -> None:
    blocks = Page(DOCS / "exit-255.md").blocks
    (job,) = (yaml.safe_load(each.text) for each in blocks if "podFailurePolicy" in each.text)
    path = "/apis/batch/v1/namespaces/default/jobs?dryRun=All&fieldValidation=Strict"
    (rule,) = cluster.create(path, job)["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "Ignore"
    assert rule["onExitCodes"] == {"operator": "In", "values": [255]}


@pytest.mark.parametrize("name", ["cert-manager.yaml", "openshift.yaml"])
def test_the_injection_annotations_leave_the_rest_of_an_object_unchanged(
    cluster: KubeCluster, name: str
) -> None:
    made = cluster.create(PATH, as_the_chart_writes_it())
    partial = documents(name)[CONFIGURATION]
    try:
        applied = cluster.kubectl(
            "apply", "--server-side", "-f", "-", input=yaml.safe_dump(partial)
        )
        assert applied.returncode == 0, applied.stderr
        now = cluster.request("GET", f"{PATH}/podsettle").body
    finally:
        cluster.request("DELETE", f"{PATH}/podsettle")
    assert now["webhooks"] == made["webhooks"]
    assert now["metadata"]["annotations"] == partial["metadata"]["annotations"]
