"""A real Prometheus (Debian's package `prometheus`) scrapes a release as its ServiceMonitor says.

The Prometheus operator's part is done here: a scrape configuration from the ServiceMonitor, and
from what its Secrets hold. So is that of the controller that writes a token into the chart's
Secret.
"""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template

import httpx
import pytest
import yaml

from tests.support.e2e_pods import is_called, simple_pod
from tests.support.helm import CRDS, NAMESPACE
from tests.support.helm_release import (
    HOST,
    OPT_IN,
    OWN,
    POLICIES,
    RELEASE,
    REQUIRED,
    ROUTING,
    Installation,
    Replica,
    installed,
    policy,
)
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.kube.custom_resources import create_crd
from tests.support.paths import CHART
from tests.support.process import free_port
from tests.support.promql import (
    API_SERVER_LABELS,
    dashboard_queries,
    labels_by_sample,
    metrics_in,
    unknown_labels,
)
from tests.support.service_accounts import signed_token
from tests.support.waiting import TIMEOUT_SECONDS, await_that

pytestmark = pytest.mark.needs("prometheus", "promtool")

MONITORING = f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """With a ServiceMonitor and alerts, and a ready replica."""
    directory = tmp_path_factory.mktemp("release")
    with KubeCluster.start(ROUTING) as cluster, installed(cluster, directory) as installation:
        for name in ("servicemonitors", "prometheusrules"):
            crd = yaml.safe_load(CRDS[f"monitoring.coreos.com_{name}"].read_text())
            create_crd(cluster, crd)
        installation.install("--set=serviceMonitor.enabled=true,prometheusRule.enabled=true")
        installation.start_ready()
        yield installation


@contextmanager
def prometheus(directory: Path, configuration: Json) -> Iterator[httpx.Client]:
    """A running Prometheus, by its API."""
    (directory / "prometheus.yml").write_text(json.dumps(configuration))
    address = f"127.0.0.1:{free_port()}"
    log = directory / "prometheus.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address={address}",
            ],
            stdout=output,
            stderr=output,
        )
    try:
        with httpx.Client(
            base_url=f"http://{address}", trust_env=False, timeout=TIMEOUT_SECONDS
        ) as client:

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
        process.wait(TIMEOUT_SECONDS)


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

        # On a slow machine a scrape may take more than the interval, which is an error of its own.
        await_that(lambda: health().get(RELEASE) == ("up", ""), "podsettle is scraped")
        await_that(
            lambda: "401" in health().get("nobody", ("", ""))[1], "a scrape without a token fails"
        )

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

        # An evaluation before the first scrape makes an alert pending until the next one.
        await_that(
            lambda: {(each["health"], each["state"]) for each in rules()} == {("ok", "inactive")},
            "every rule was evaluated, and no alert is active",
        )

        for query in _dashboard_queries():
            answer = client.get("/api/v1/query", params={"query": query}).json()
            assert answer["status"] == "success", answer


def _dashboard_queries() -> list[str]:
    variables = {"namespace": NAMESPACE, "job": RELEASE, "__rate_interval": "1m"}
    return [Template(query.expression).substitute(variables) for query in dashboard_queries()]


def test_scrape_has_every_metric_of_alerts_and_dashboard(release: Installation) -> None:
    """After one request of each kind: a counter with labels has no sample before.

    It stops podsettle, so it is the last test of the release.
    """
    cluster = release.cluster
    (replica,) = release.replicas
    cluster.create(POLICIES, policy("opt-in"))
    namespace = cluster.namespace("scraped-", labels={"podsettle.dev/policy": "opt-in"})
    await_that(lambda: is_called(cluster, namespace), "the namespace is covered")
    assert cluster.create_pod(simple_pod("pod", namespace)).status == 201
    assert replica.request("POST", "/mutate", content={}).status_code == 400
    await_that(lambda: _previews(replica, cluster.token), "a preview is answered")

    scrape = replica.request("GET", "/metrics", token=cluster.token).text
    labels = 'policy="opt-in",remedy="postInitSleep"'
    assert f"podsettle_settled_pods_total{{{labels}}} 1.0" in scrape
    # There are no nodes, so the policy counts as needed.
    assert f"podsettle_policy_still_needed{{{labels}}} 1.0" in scrape
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=scrape, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    rules = release.get(f"{MONITORING}/prometheusrules/{RELEASE}")["spec"]["groups"][0]["rules"]
    expressions = [*(rule["expr"] for rule in rules), *_dashboard_queries()]
    named = {name for expression in expressions for name in metrics_in(expression)}
    own = {name for name in named if not name.startswith("apiserver_")} - {"up"}
    assert own <= labels_by_sample(scrape).keys()
    known = labels_by_sample(scrape) | API_SERVER_LABELS | {"up": set()}
    assert not [found for each in expressions for found in unknown_labels(each, known)]

    release.stop_all(signal.SIGKILL)
    assert cluster.create_pod(simple_pod("ignored", namespace), dry_run=True).status == 201
    release.helm("upgrade", RELEASE, CHART, REQUIRED, "--set=webhook.failurePolicy=Fail")
    await_that(
        lambda: cluster.create_pod(simple_pod("refused", namespace), dry_run=True).status == 500,
        "the API server refuses pods",
    )
    served = cluster.kubectl("get", "--raw", "/metrics").stdout
    for name in named - own - {"up"}:
        assert re.search(rf'^{name}\{{[^}}]*name="{OPT_IN}"', served, re.MULTILINE), name
        assert labels_by_sample(served)[name] == API_SERVER_LABELS[name]


def _previews(replica: Replica, token: str) -> bool:
    answer = replica.request("POST", "/preview", token=token, content=simple_pod("pod"))
    return answer.status_code == 200


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
    token = signed_token(release.cluster, claims)
    data = {"token": base64.b64encode(token.encode()).decode()}
    status, answer, _ = release.cluster.request("PATCH", f"{OWN}/secrets/{name}", {"data": data})
    assert status == 200, answer


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
        "static_configs": [{"targets": [f"{address}:{replica.web_port}"], "labels": labels}],
    }
