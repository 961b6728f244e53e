"""Tests of the objects that the chart renders for each certificate source."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest
import yaml

from tests.support.helm import NAMESPACE, VALUES, Json, named, objects
from tests.support.paths import ROOT


def test_each_certificate_source_renders_its_objects() -> None:
    def kinds(values: str) -> set[str]:
        return {each["kind"] for each in objects(values)}

    def webhook(values: str) -> Json:
        return named("MutatingWebhookConfiguration", "podsettle", values)

    own = kinds("default")
    assert kinds("cert-manager") == own - {"Secret"} | {"Issuer", "Certificate"}
    assert kinds("cert-manager-issuer") == own - {"Secret"} | {"Certificate"}
    # Its only Secret is that of the account for scraping.
    assert kinds("openshift") == own | {"ServiceMonitor", "ConfigMap"}
    assert kinds("files") == own - {"Secret"}

    certificate = f"{NAMESPACE}/podsettle"
    annotations = {"cert-manager.io/inject-ca-from": certificate}
    assert webhook("cert-manager")["metadata"]["annotations"] == annotations
    issued = named("Certificate", "podsettle", "cert-manager")["spec"]
    assert issued["dnsNames"][0] == f"podsettle.{NAMESPACE}.svc"
    issuers = {e["metadata"]["name"] for e in objects("cert-manager") if e["kind"] == "Issuer"}
    for each in objects("cert-manager"):
        if each["kind"] == "Certificate":
            assert each["spec"]["issuerRef"]["name"] in issuers

    annotations = {"service.beta.openshift.io/inject-cabundle": "true"}
    assert webhook("openshift")["metadata"]["annotations"] == annotations
    service = named("Service", "podsettle", "openshift")["metadata"]["annotations"]
    pod = named("Deployment", "podsettle", "openshift")["spec"]["template"]["spec"]
    secret = pod["volumes"][0]["secret"]["secretName"]
    assert service["service.beta.openshift.io/serving-cert-secret-name"] == secret

    # Helm cannot take over a Secret that another source has left.
    secrets = [pod["volumes"][0]["secret"]["secretName"]]
    pod = named("Deployment", "podsettle", "cert-manager")["spec"]["template"]["spec"]
    assert pod["volumes"][0]["secret"]["secretName"] == issued["secretName"]
    secrets += [issued["secretName"], named("Secret", "podsettle-tls")["metadata"]["name"]]
    assert len(set(secrets)) == 3

    bundled = [v for v in VALUES if v != "everything" and _bundle(webhook(v))]
    assert bundled == ["files"]
    given = yaml.safe_load(VALUES["files"].read_text())["webhook"]["caBundle"]
    assert b64decode(_bundle(webhook("files")) or "").decode() == given


def test_durations_are_in_the_form_that_cert_manager_writes() -> None:
    """Go's `Duration.String`. A GitOps tool would take any other form for drift."""
    for each in objects("cert-manager"):
        if each["kind"] == "Certificate":
            found = {each["spec"].get(key) for key in ("duration", "renewBefore")} - {None}
            assert found
            assert all(re.fullmatch(r"\d+h0m0s", duration) for duration in found)


def _bundle(configuration: Json) -> str | None:
    bundle: str | None = configuration["webhooks"][0]["clientConfig"].get("caBundle")
    return bundle


@pytest.mark.parametrize("source", ["cert-manager", "openshift"])
def test_manifests_in_certs_match_the_rendered_chart(source: str) -> None:
    for wanted in yaml.safe_load_all((ROOT / "certs" / f"{source}.yaml").read_text()):
        made = named(wanted["kind"], wanted["metadata"]["name"], source)
        assert made["metadata"].items() >= wanted["metadata"].items()
        assert made.get("spec") == wanted.get("spec", made.get("spec"))
