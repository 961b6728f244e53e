"""The manifests in certs/: what they say of each other, and of podsettle, is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kube.cluster import KubeCluster
from webhook.tls.dynamic_source import service_names

CERTS = Path(__file__).parents[3] / "certs"
CONFIGURATION = ("MutatingWebhookConfiguration", "podsettle")


def documents(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    found = yaml.safe_load_all((CERTS / name).read_text())
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def test_cert_manager_issues_for_the_service_from_a_ca_that_keeps_its_key() -> None:
    found = documents("cert-manager.yaml")
    leaf, ca = (
        found["Certificate", "podsettle"]["spec"],
        found["Certificate", "podsettle-ca"]["spec"],
    )
    assert tuple(leaf["dnsNames"]) == service_names("podsettle", "podsettle-system")
    assert leaf["privateKey"] == {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"}
    assert ca["isCA"]
    assert ca["privateKey"]["rotationPolicy"] == "Never"
    for certificate in (leaf, ca):
        assert (certificate["issuerRef"]["kind"], certificate["issuerRef"]["name"]) in found
    signer = found["Issuer", leaf["issuerRef"]["name"]]["spec"]
    assert signer == {"ca": {"secretName": ca["secretName"]}}


def test_cert_manager_injects_the_ca_of_the_served_certificate() -> None:
    found = documents("cert-manager.yaml")
    injected = found[CONFIGURATION]["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    namespace, name = injected.split("/")
    assert found["Certificate", name]["metadata"]["namespace"] == namespace


def test_openshift_writes_the_secret_and_the_bundle() -> None:
    found = documents("openshift.yaml")
    service = found["Service", "podsettle"]["metadata"]["annotations"]
    assert service == {"service.beta.openshift.io/serving-cert-secret-name": "podsettle-tls"}
    configuration = found[CONFIGURATION]["metadata"]["annotations"]
    assert configuration == {"service.beta.openshift.io/inject-cabundle": "true"}


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
