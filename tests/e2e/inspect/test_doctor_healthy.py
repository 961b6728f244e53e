"""Healthy installations, with each source of certificates: doctor finds no fault.

And what doctor says with fewer rights, without podsettle, and while it waits.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
import yaml

from tests.support.doctor_release import DoctorRelease
from tests.support.helm import CRDS, NAMESPACE
from tests.support.helm_release import (
    CONFIGURATION,
    OWN,
    RELEASE,
    REQUIRED,
    ROUTING,
    Installation,
    installed,
)
from tests.support.kube.cluster import KubeCluster
from tests.support.kube.custom_resources import create_crd
from tests.support.private_registry import private_registry
from tests.support.process import podsettle
from tests.support.service_accounts import grant, kubeconfig_of_account
from webhook.inspect.doctor.run import CHECKS

FAIL = "--set=webhook.failurePolicy=Fail"


@pytest.fixture(scope="module")
def own() -> Iterator[KubeCluster]:
    with KubeCluster.start(ROUTING) as cluster:
        for path in CRDS.values():
            create_crd(cluster, yaml.safe_load(path.read_text()))
        cluster.namespace(NAMESPACE)
        yield cluster


@pytest.fixture
def fresh(own: KubeCluster, tmp_path: Path) -> Iterator[Installation]:
    with installed(own, tmp_path) as installation:
        yield installation
        installation.helm("uninstall", RELEASE)
        own.request("DELETE", f"{OWN}/pods?gracePeriodSeconds=0")


def inject(release: DoctorRelease) -> None:
    """Do the work of cert-manager's injector, or of OpenShift's service CA."""
    bundle = base64.b64encode((release.directory / "ca.crt").read_bytes()).decode()
    path = "/webhooks/0/clientConfig/caBundle"
    operation = {"op": "add", "path": path, "value": bundle}
    status, answer, _ = release.cluster.request("PATCH", CONFIGURATION, [operation])
    assert status == 200, answer


SOURCES = {
    "self-managed": (),
    "files and Fail": (FAIL,),
    "cert-manager": ("--set=certificates.source=certManager",),
    "OpenShift and Fail": ("--set=certificates.source=openshift", FAIL),
}


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(source, marks=[] if source == "self-managed" else [pytest.mark.slow])
        for source in SOURCES
    ],
)
def test_healthy_installation_has_no_fault(
    fresh: Installation, tmp_path: Path, source: str
) -> None:
    release = DoctorRelease(fresh, tmp_path, is_mounted=source != "self-managed")
    values = (*(release.values if "files" in source else (REQUIRED,)), *SOURCES[source])
    is_injected = "certificates.source" in str(SOURCES[source])
    release.install(*values, inject=inject if is_injected else None)
    lines = release.doctor("--wait", "60s")
    assert [line for line in lines if line.state == "fault"] == []
    states = {line.check: line.state for line in lines}
    assert set(states) == {check.name for check in CHECKS} | {"certificate"}
    # The registry of the helper does not exist, and no node is known here.
    not_ok = {check: state for check, state in states.items() if state != "ok"}
    assert not_ok in (
        {"helper pull": "unknown"},
        {"helper pull": "unknown", "failed calls": "warning"},
    )
    text = release.run().stdout
    assert f"podsettle doctor: {NAMESPACE}/{RELEASE} in tests ({release.cluster.url})" in text
    assert text.splitlines()[-1].startswith("no fault; ")


def test_missing_installation_is_a_fault_and_missing_rights_are_not_looked_at(
    own: KubeCluster, tmp_path: Path
) -> None:
    done = podsettle("doctor", "--kubeconfig", own.kubeconfig)
    assert (done.returncode, done.stderr) == (1, "")
    assert "installation: there is no Deployment of podsettle" in done.stdout
    done = podsettle(
        "doctor", "--kubeconfig", kubeconfig_of_account(own, "default:default", tmp_path)
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert "not looked at" in done.stdout
    assert "needs the right to list deployments in all namespaces" in done.stdout


def reader_of_pods(cluster: KubeCluster, directory: Path) -> Path:
    """A kubeconfig of a user who may only list the Deployment and the pods of the installation."""
    account = f"{cluster.namespace('users-')}:default"
    rule = {"apiGroups": ["apps", ""], "resources": ["deployments", "pods"], "verbs": ["list"]}
    grant(cluster, account, [rule], within=NAMESPACE)
    return kubeconfig_of_account(cluster, account, directory)


@pytest.mark.slow
def test_user_with_few_rights_gets_the_missing_ones_by_name(
    fresh: Installation, tmp_path: Path
) -> None:
    """The user may only read the Deployment and the pods of the installation's namespace."""
    release = DoctorRelease(fresh, tmp_path)
    release.install(*release.values)
    cluster = release.cluster
    kubeconfig = reader_of_pods(cluster, tmp_path)
    flags = ("doctor", "-n", NAMESPACE, "--kubeconfig", kubeconfig, "-o", "json", "--wait", "60s")
    done = podsettle(*flags)
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)
    rights = {each["check"]: each["right"] for each in report["checks"]}
    in_namespace = f"in namespace {NAMESPACE}"
    pod = cluster.request("GET", f"{OWN}/pods").body["items"][0]["metadata"]["name"]
    assert rights["permissions"] == "create subjectaccessreviews"
    assert rights["policies"] == "list settlepolicies"
    assert rights["failed calls"] == "get /metrics"
    assert rights["webhook configuration"] == f"get mutatingwebhookconfigurations/{RELEASE}"
    assert rights["readiness"].startswith(f"get pods/{pod.rpartition('-')[0]}-")
    assert rights["readiness"].endswith(f"/proxy {in_namespace}")
    states = {each["check"]: each["state"] for each in report["checks"]}
    assert "fault" not in states.values()
    assert states["replicas"] == "ok"
    assert states["helper image"] == "ok"


@pytest.mark.needs("docker-registry")
@pytest.mark.slow
def test_helper_is_pulled_with_the_secrets_of_the_chosen_namespace(
    fresh: Installation, tmp_path: Path
) -> None:
    release = DoctorRelease(fresh, tmp_path)
    cluster, ca = release.cluster, trustme.CA()
    trusted = tmp_path / "registry-ca.crt"
    ca.cert_pem.write_to_path(trusted)
    with private_registry(tmp_path / "registry", ca, "/linger") as (image, secret):
        release.install(*release.values, f"--set=lingerImage={image}")
        labels = {"podsettle.dev/policy": "opt-in"}
        with_secret, without = (cluster.namespace("pull-", labels=labels) for _ in range(2))
        cluster.create(f"/api/v1/namespaces/{with_secret}/secrets", secret)
        account = f"/api/v1/namespaces/{with_secret}/serviceaccounts/default"
        cluster.request("PATCH", account, {"imagePullSecrets": [{"name": "registry"}]})

        def pull(namespace: str) -> tuple[str, str]:
            done = podsettle(
                "doctor", "--kubeconfig", cluster.kubeconfig, "--in", namespace, "-o", "json",
                env={**os.environ, "SSL_CERT_FILE": str(trusted)},
            )  # fmt: skip
            checks = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
            return checks["helper pull"]["state"], checks["helper pull"]["result"]

        state, result = pull(with_secret)
        assert (state, result) == (
            "ok",
            f"pods of namespace {with_secret} can pull {image}, as seen from this machine",
        )
        assert pull(without)[0] == "unknown"
        assert pull("kube-system") == (
            "unknown",
            "no policy covers namespace kube-system; choose a covered namespace with --in",
        )
