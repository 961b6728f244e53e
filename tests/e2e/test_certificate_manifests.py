"""The manifests in certs/ on a real API server."""

from __future__ import annotations

import pytest
import yaml

from tests.support.certificate_manifests import CONFIGURATION, documents
from tests.support.kube.cluster import KubeCluster


@pytest.mark.parametrize("name", ["cert-manager.yaml", "openshift.yaml"])
def test_the_injection_annotations_leave_the_rest_of_an_object_unchanged(
    cluster: KubeCluster, name: str
) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    webhook = {
        "name": "opt-in.podsettle.dev",
        "clientConfig": {"url": "https://podsettle.example/mutate"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    made = cluster.create(path, {"metadata": {"name": "podsettle"}, "webhooks": [webhook]})
    partial = documents(name)[CONFIGURATION]
    try:
        applied = cluster.kubectl(
            "apply", "--server-side", "-f", "-", input=yaml.safe_dump(partial)
        )
        assert applied.returncode == 0, applied.stderr
        now = cluster.request("GET", f"{path}/podsettle").body
    finally:
        cluster.request("DELETE", f"{path}/podsettle")
    assert now["webhooks"] == made["webhooks"]
    assert now["metadata"]["annotations"] == partial["metadata"]["annotations"]
