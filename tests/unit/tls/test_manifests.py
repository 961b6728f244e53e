"""The manifests in certs/ agree with each other and with podsettle."""

from __future__ import annotations

from tests.support.certificate_manifests import CONFIGURATION, documents
from webhook.tls.dynamic_source import service_names


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
    secret = "podsettle-openshift-tls"
    assert service == {"service.beta.openshift.io/serving-cert-secret-name": secret}
    configuration = found[CONFIGURATION]["metadata"]["annotations"]
    assert configuration == {"service.beta.openshift.io/inject-cabundle": "true"}
