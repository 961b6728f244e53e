"""`podsettle scan` of a real API server with 54 nodes and 1,000 pods (5,008 in its long form).

Each symptom is planted in two namespaces, with look-alikes that differ in one field.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.support.chromium import start_chromium
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.long_forms import IS_LONG
from tests.support.measured_command import MAX_SECONDS, Measured, measured
from tests.support.planted_cluster import NAMESPACES, fill
from tests.support.planted_symptoms import (
    NODE_HANDLERS,
    NODE_RUNTIMES,
    PLANTS,
    RUNTIME_CLASS,
    Plant,
    node,
)
from tests.support.policy_objects import install_crd
from tests.support.process import start_server
from tests.support.registered_webhook import registered
from tests.support.service_accounts import grant, kubeconfig_of_account
from tests.support.waiting import await_that
from webhook.cli import main
from webhook.inspect.scan import unsettled
from webhook.inspect.scan.symptoms import SYMPTOMS

pytestmark = pytest.mark.slow

PODS, NODES = 5_008 if IS_LONG else 1_000, 54
MAX_SCREENS = 2
MAX_MEMORY_KIB = 150 * 1024


@pytest.fixture(scope="module")
def planted() -> Iterator[KubeCluster]:
    with KubeCluster.start() as cluster:
        install_crd(cluster)
        fill(cluster, PODS, NODES)
        yield cluster


@pytest.fixture(scope="module")
def scanned(planted: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measured(planted, tmp_path_factory.mktemp("scan"), "scan", "-o", "json")


def test_every_planted_symptom_and_no_look_alike_is_found(scanned: Measured) -> None:
    report = json.loads(scanned.output)
    assert scanned.code == 1
    assert report["pods"] == PODS
    assert sum(group["count"] for group in report["nodes"]) == NODES
    found = Counter(
        (symptom["id"], finding["namespace"], finding["certainty"])
        for symptom in report["symptoms"]
        for finding in symptom["findings"]
        for _ in range(finding["count"])
    )
    expected = Counter(
        (plant.symptom, namespace, plant.certainty) for plant in PLANTS for namespace in NAMESPACES
    )
    assert found == expected


def test_scan_of_a_large_cluster_takes_little_memory_and_time(scanned: Measured) -> None:
    assert scanned.peak_kib < MAX_MEMORY_KIB
    assert scanned.seconds < MAX_SECONDS


@pytest.mark.needs("chromium", "chromedriver")
def test_html_of_a_large_cluster_is_drawn_without_errors(
    planted: KubeCluster, tmp_path: Path
) -> None:
    page = tmp_path / "scan.html"
    page.write_text(measured(planted, tmp_path, "scan", "-o", "html").output)
    assert page.stat().st_size < 500 * 1024
    with start_chromium(tmp_path / "profile") as browser:
        for scheme in ("light", "dark"):
            browser.emulate(scheme=scheme)
            browser.open(page.as_uri())
            # The browser reports a blocked style sheet here.
            assert browser.console() == []
            assert [each["url"] for each in browser.requests()] == [page.as_uri()]
            widths = browser.run(
                "return [...document.querySelectorAll('.chart rect.affected')]"
                ".map((bar) => bar.getBoundingClientRect().width)"
            )
            assert widths
            assert all(width > 0 for width in widths)
            screens = "return document.documentElement.scrollHeight / innerHeight"
            assert browser.run(screens) <= MAX_SCREENS
        marks = "return document.querySelectorAll('.chart rect.mark').length"
        assert browser.run(marks) >= len(SYMPTOMS)
        fits = "return document.documentElement.scrollWidth <= innerWidth"
        browser.emulate(width=320)
        assert browser.run(fits)


def test_each_proposed_policy_changes_each_pod_that_it_claims(
    planted: KubeCluster, scanned: Measured, tmp_path: Path
) -> None:
    policies = measured(planted, tmp_path, "scan", "-o", "policy").output
    acting = [line for line in policies.splitlines() if "action: Audit" not in line]
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(policies)]
    nodes = [
        node(name, runtime, NODE_HANDLERS.get(name)) for name, runtime in NODE_RUNTIMES.items()
    ]
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "policies.yaml").write_text("\n".join(acting))
    (manifests / "cluster.yaml").write_text(yaml.safe_dump_all([*nodes, RUNTIME_CLASS]))
    proposed = [each for each in json.loads(scanned.output)["symptoms"] if each["policy"]]
    assert len(names) == len(proposed) == 4
    image = ("--linger-image", "registry.example/linger:1")
    with ExitStack() as stack:
        server = stack.enter_context(start_server(manifests, tmp_path / "certs", *image))
        url, ca = f"{server.url}/mutate", server.ca.read_bytes()
        stack.enter_context(registered(planted, "podsettle", url, ca))
        first = next(plant for plant in PLANTS if plant.symptom == proposed[0]["id"])
        await_that(lambda: applied(planted, first, "ci"), "the API server calls podsettle")
        for symptom in proposed:
            name = yaml.safe_load(symptom["policy"])["metadata"]["name"]
            plants = [plant for plant in PLANTS if plant.symptom == symptom["id"]]
            claimed = [(plant, namespace) for plant in plants for namespace in NAMESPACES]
            assert symptom["preview"]["changes"] == len(claimed)
            for plant, namespace in claimed:
                pairs = applied(planted, plant, namespace).split(",")
                assert f"{name}/{symptom['preview']['remedy']}" in pairs, plant.name


def test_proposed_policy_is_previewed_on_the_template_of_a_job(
    planted: KubeCluster, tmp_path: Path
) -> None:
    path = "/apis/batch/v1/namespaces/ci/jobs"
    container = {"name": "main", "image": "registry.example/app:2"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    planted.create(path, {"metadata": {"name": "nightly"}, "spec": {"template": template}})
    report = json.loads(measured(planted, tmp_path, "scan", "-n", "ci", "-o", "json").output)
    planted.request("DELETE", f"{path}/nightly")
    (found,) = (each for each in report["symptoms"] if each["id"] == "cri-o-9840")
    assert found["preview"]["changes"] == 1
    (unchanged,) = found["preview"]["unchanged"]
    assert unchanged["pods"] == 1
    assert unchanged["text"].startswith("NoCommand: ")


def applied(cluster: KubeCluster, plant: Plant, namespace: str) -> str:
    """What podsettle applies to the next pod of a planted one."""
    pod = plant.pod(namespace)
    pod["metadata"]["name"] += "-next"
    del pod["spec"]["nodeName"]
    answer = cluster.create_pod(pod, dry_run=True)
    assert answer.status == 201, answer.body
    annotations: dict[str, str] = answer.body["metadata"].get("annotations", {})
    return annotations.get("podsettle.dev/applied", "")


READ = {
    "pods": "",
    "events": "",
    "nodes": "",
    "namespaces": "",
    "runtimeclasses": "node.k8s.io",
    "certificatesigningrequests": "certificates.k8s.io",
    "settlepolicies": "podsettle.dev",
    "mutatingwebhookconfigurations": "admissionregistration.k8s.io",
}
"""What a scan lists, with the API group of each."""


def kubeconfig_without(cluster: KubeCluster, lacking: str | None) -> Path:
    """The configuration of an account that may list everything that a scan reads but one kind."""
    name = f"lacks-{lacking or 'nothing'}"
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["list"]}
        for resource, group in READ.items()
        if resource != lacking
    ]
    cluster.namespace("accounts", service_accounts=[name])
    grant(cluster, f"accounts:{name}", rules)
    return kubeconfig_of_account(cluster, f"accounts:{name}", cluster.directory)


def scan_without(cluster: KubeCluster, lacking: str | None, namespace: str | None) -> Json:
    """The report of an account that lacks one right."""
    kubeconfig = kubeconfig_without(cluster, lacking)
    where = ["-n", namespace] if namespace else []
    result = CliRunner().invoke(
        main, ["scan", "--kubeconfig", str(kubeconfig), "-o", "json", *where]
    )
    assert result.exit_code == 0, result.output
    report: Json = json.loads(result.stdout)
    return report


@pytest.fixture(scope="module")
def quiet(planted: KubeCluster) -> str:
    """A namespace in which nothing is wrong."""
    name = planted.namespace("quiet")
    pod = {
        "metadata": {"name": "idle", "namespace": name},
        "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
    }
    assert planted.create_pod(pod).status == 201
    return name


AREAS = {each.id: each.areas for each in (*SYMPTOMS, unsettled.SYMPTOM)}
EXPIRING = {"events", "certificatesigningrequests"}


@pytest.mark.parametrize("lacking", [None, *READ])
def test_symptom_is_not_looked_at_without_the_right_to_one_of_its_resources(
    planted: KubeCluster, quiet: str, lacking: str | None
) -> None:
    report = scan_without(planted, lacking, quiet)
    verdicts = {each["id"]: each["verdict"] for each in report["symptoms"]}
    assert verdicts.keys() == AREAS.keys()
    for symptom, verdict in verdicts.items():
        if lacking in AREAS[symptom]:
            assert verdict["answer"] == "not_looked_at"
            assert f"list {lacking}" in verdict["text"]
        else:
            expected = "unknown" if EXPIRING & {*AREAS[symptom]} else "none"
            assert verdict["answer"] == expected, verdict
    looked = {area["name"]: area["looked"] for area in report["areas"]}
    assert looked.keys() == READ.keys()
    assert {name for name, state in looked.items() if state == "not_looked_at"} == {lacking} - {
        None
    }


def test_scan_without_any_right_ends_with_an_error(planted: KubeCluster) -> None:
    planted.namespace("accounts", service_accounts=["powerless"])
    path = kubeconfig_of_account(planted, "accounts:powerless", planted.directory)
    result = CliRunner().invoke(main, ["scan", "--kubeconfig", str(path)])
    assert result.exit_code == 2
    assert "nothing could be read" in result.stderr
    for resource in READ:
        assert f"list {resource}" in result.stderr
    assert result.stderr.endswith("; with rights in one namespace, give -n NAMESPACE\n")
