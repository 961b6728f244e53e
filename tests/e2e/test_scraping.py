"""A real Prometheus (Debian's package `prometheus`) scrapes a release as its ServiceMonitor says.

The Prometheus operator's part is done here: a scrape configuration from the ServiceMonitor, and
from what its Secrets hold. So is that of the controller that writes a token into the chart's
Secret.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.support.helm import CRDS, NAMESPACE
from tests.support.helm_release import (
    HOST,
    IMAGES,
    OWN,
    RELEASE,
    ROUTING,
    Installation,
    Replica,
    installed,
)
from tests.support.kube.cluster import KubeCluster
from tests.support.paths import CHART
from tests.support.process import free_port
from tests.support.waiting import await_that

pytestmark = pytest.mark.xdist_group("chart-scraping")

Json: TypeAlias = dict[str, Any]

MONITORING = f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}"


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Installation]:
    """With a ServiceMonitor and alerts, and a ready replica."""
    with KubeCluster.start(ROUTING) as cluster, installed(cluster, tmp_path) as installation:
        for name in ("servicemonitors", "prometheusrules"):
            crd = yaml.safe_load(CRDS[f"monitoring.coreos.com_{name}"].read_text())
            cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
            path = f"{MONITORING}/{name}"
            await_that(
                lambda path=path: cluster.request("GET", path).status == 200,  # type: ignore[misc]
                "the CRD is served",
            )
        monitoring = "--set=serviceMonitor.enabled=true,prometheusRule.enabled=true"
        installation.helm("install", RELEASE, CHART, IMAGES, monitoring, "--create-namespace")
        cluster.namespace(NAMESPACE)
        await_that(installation.start().is_ready, "podsettle is ready")
        yield installation


def test_prometheus_scrapes_with_the_credential_that_the_chart_makes(
    release: Installation, tmp_path: Path
) -> None:
    (endpoint,) = release.get(f"{MONITORING}/servicemonitors/{RELEASE}")["spec"]["endpoints"]
    credentials = endpoint["authorization"]["credentials"]
    _write_token(release, credentials["name"])
    authorized = {
        "type": endpoint["authorization"]["type"],
        "credentials": _secret(release, credentials),
    }
    (tmp_path / "ca.crt").write_text(_secret(release, endpoint["tlsConfig"]["ca"]["secret"]))
    (replica,) = release.replicas
    job = _job(endpoint, replica, release.address, tmp_path / "ca.crt")
    (tmp_path / "rules.yml").write_text(
        json.dumps(release.get(f"{MONITORING}/prometheusrules/{RELEASE}")["spec"])
    )
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {**job, "job_name": RELEASE, "authorization": authorized},
            {**job, "job_name": "nobody"},
        ],
    }
    with prometheus(tmp_path, configuration) as client:

        def health() -> dict[str, tuple[str, str]]:
            found = client.get("/api/v1/targets").json()["data"]["activeTargets"]
            return {each["scrapePool"]: (each["health"], each["lastError"]) for each in found}

        await_that(
            lambda: {each for each, _ in health().values()} == {"up", "down"},
            "both are scraped",
        )
        assert health()[RELEASE] == ("up", "")
        assert "401" in health()["nobody"][1]

        def value(query: str) -> list[str]:
            answer = client.get("/api/v1/query", params={"query": query}).json()
            return [each["value"][1] for each in answer["data"]["result"]]

        await_that(
            lambda: value(f'podsettle_check_ready{{job="{RELEASE}",check="certificate"}}') == ["1"],
            "podsettle's metrics are there",
        )

        def rules() -> list[Json]:
            (group,) = client.get("/api/v1/rules").json()["data"]["groups"]
            found: list[Json] = group["rules"]
            return found

        await_that(
            lambda: {each["health"] for each in rules()} == {"ok"}, "every rule was evaluated"
        )
        assert {each["state"] for each in rules()} == {"inactive"}


def _write_token(release: Installation, name: str) -> None:
    """What the controller for tokens does with a Secret of its type."""
    secret = release.get(f"{OWN}/secrets/{name}")
    assert secret["type"] == "kubernetes.io/service-account-token"
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    uid = release.get(f"{OWN}/serviceaccounts/{account}")["metadata"]["uid"]
    claim = "kubernetes.io/serviceaccount"
    # As kubernetes' `pkg/serviceaccount/legacy.go`: without an audience, and without an end.
    claims = {
        "iss": "kubernetes/serviceaccount",
        "sub": f"system:serviceaccount:{NAMESPACE}:{account}",
        f"{claim}/namespace": NAMESPACE,
        f"{claim}/secret.name": name,
        f"{claim}/service-account.name": account,
        f"{claim}/service-account.uid": uid,
    }
    token = _signed(claims, release.cluster.directory / "service-accounts.key")
    data = {"token": base64.b64encode(token.encode()).decode()}
    status, answer, _ = release.cluster.request("PATCH", f"{OWN}/secrets/{name}", {"data": data})
    assert status == 200, answer


def _signed(claims: Json, key_file: Path) -> str:
    """A JSON Web Token, by the key with which the API server checks ServiceAccounts' tokens."""

    def encoded(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    key = load_pem_private_key(key_file.read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    parts = ({"alg": "ES256", "typ": "JWT"}, claims)
    content = ".".join(encoded(json.dumps(part).encode()) for part in parts)
    numbers = decode_dss_signature(key.sign(content.encode(), ECDSA(SHA256())))
    signature = b"".join(number.to_bytes(32, "big") for number in numbers)
    return f"{content}.{encoded(signature)}"


def _secret(release: Installation, selector: Json) -> str:
    """What a ServiceMonitor's SecretKeySelector selects."""
    data = release.get(f"{OWN}/secrets/{selector['name']}")["data"]
    return base64.b64decode(data[selector["key"]]).decode()


def _job(endpoint: Json, replica: Replica, address: str, ca: Path) -> Json:
    server_name = endpoint["tlsConfig"]["serverName"]
    assert server_name == HOST
    labels = {"namespace": NAMESPACE}
    return {
        "scheme": endpoint["scheme"],
        "metrics_path": endpoint["path"],
        "tls_config": {"ca_file": str(ca), "server_name": server_name},
        "static_configs": [{"targets": [f"{address}:{replica.port}"], "labels": labels}],
    }


@contextmanager
def prometheus(directory: Path, configuration: Json) -> Iterator[httpx.Client]:
    """A running Prometheus, by its API."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus: install the package `prometheus`")
    (directory / "prometheus.yml").write_text(json.dumps(configuration))
    address = f"127.0.0.1:{free_port()}"
    log = directory / "prometheus.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address={address}",
            ],
            stdout=output,
            stderr=output,
        )
    try:
        with httpx.Client(base_url=f"http://{address}", trust_env=False) as client:

            def is_ready() -> bool:
                assert process.poll() is None, log.read_text()
                try:
                    return client.get("/-/ready").status_code == 200
                except httpx.TransportError:
                    return False

            await_that(is_ready, "Prometheus is ready")
            yield client
    finally:
        process.terminate()
        process.wait(30)
