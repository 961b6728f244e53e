"""`podsettle explain` at a real API server, as an administrator and as a developer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.e2e_pods import is_called, simple_pod
from tests.support.factories import policy_document
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.live_cluster import account_with
from tests.support.policy_objects import POLICIES, install_crd
from tests.support.process import podsettle, podsettle_process
from tests.support.registered_webhook import podsettle_called_by
from tests.support.service_accounts import kubeconfig_of_an_account_with
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from webhook.cluster.client import ApiServer

DOCS_URL = "https://wiki.example/podsettle/operators/explain"
NODE = {
    "metadata": {"name": "affected"},
    "status": {
        "nodeInfo": dict.fromkeys(
            ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion",
             "operatingSystem", "architecture"), "x"
        ) | {"containerRuntimeVersion": "cri-o://1.33.12", "kubeletVersion": "v1.33.12"}
    },
}  # fmt: skip
# What the ClusterRole `view` grants in one namespace, as far as `explain` reads it.
DEVELOPER = [
    {"apiGroups": [""], "resources": ["pods", "events", "namespaces"], "verbs": ["get", "list"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]},
]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """A cluster with podsettle, one policy, an affected node, and the namespace ci."""
    with KubeCluster.start() as cluster:
        install_crd(cluster)
        cluster.create("/api/v1/nodes", NODE)
        selector = {"matchLabels": {"kubernetes.io/metadata.name": "ci"}}
        remedies = {"postInitSleep": {"initContainers": ["*"], "containers": ["*"]}}
        cluster.create(
            POLICIES,
            policy_document("quick-jobs", namespaceSelector=selector, remedies=remedies),
        )
        cluster.namespace("ci")
        cluster.namespace("elsewhere")
        options = ("--linger-image", "registry.example/linger:1", "--docs-url", DOCS_URL)
        directory = tmp_path_factory.mktemp("podsettle")
        with podsettle_called_by(cluster, directory, *options, namespace="ci"):
            yield cluster


@pytest.fixture(scope="module")
def build(own: KubeCluster) -> str:
    """A settled pod: its container `main` has no command, so it was left out."""
    status, created, warnings = own.create_pod(simple_pod("build", "ci"))
    assert status == 201, created
    assert any("NoCommand" in warning for warning in warnings)
    return "build"


@pytest.fixture(scope="module")
def developer(own: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of an account that sees its own namespace only."""
    return kubeconfig_of_an_account_with(own, "ci", DEVELOPER, tmp_path_factory.mktemp("ci"))


def test_kubectl_describe_shows_the_whole_summary_with_its_address(
    own: KubeCluster, build: str
) -> None:
    """kubectl cuts long lines of annotations, so each clause and the address are lines."""
    described = own.kubectl("describe", "pod", build, "-n", "ci").stdout.splitlines()
    begin = next(n for n, line in enumerate(described) if "podsettle.dev/summary:" in line)
    assert [line.strip() for line in described[begin + 1 : begin + 4]] == [
        "prepare is kept alive for at least 500 ms, by policy quick-jobs;",
        "main was left as it is: NoCommand.",
        f"Why: {DOCS_URL}",
    ]


def explained(kubeconfig: Path, *arguments: str) -> Json:
    done = podsettle_process("explain", *arguments, "--kubeconfig", kubeconfig, "-o", "json")
    assert done.returncode == 0, done.stderr
    answer: Json = json.loads(done.stdout)
    return answer


def test_settled_pod_is_explained_with_the_decision_of_today(own: KubeCluster, build: str) -> None:
    answer = explained(own.kubeconfig, f"pod/{build}", "-n", "ci")
    assert answer["verdict"] == "podsettle changed this pod when it was created."
    (applied,) = answer["applied"]
    assert (applied["policy"], applied["remedy"]) == ("quick-jobs", "postInitSleep")
    assert applied["today"] == ""
    assert [(each["container"], each["reason"]) for each in answer["leftOut"]] == [
        ("main", "NoCommand")
    ]
    assert [(o["container"], o["reason"]) for o in answer["today"]["outcomes"]] == [
        ("prepare", "Applied"), ("main", "NoCommand")
    ]  # fmt: skip
    (need,) = answer["nodes"]
    assert (need["policy"], need["status"]) == ("quick-jobs", "True")
    assert "affected (cri-o 1.33.12)" in need["message"]
    assert answer["unknown"] == []


def test_developer_learns_what_the_pod_alone_tells_and_which_rights_are_missing(
    own: KubeCluster, build: str, developer: Path
) -> None:
    all_rights = explained(own.kubeconfig, f"pod/{build}", "-n", "ci")
    answer = explained(developer, build)
    for same in ("verdict", "summary", "leftOut", "containers", "notes"):
        assert answer[same] == all_rights[same], same
    assert answer["applied"] == all_rights["applied"]
    assert answer["today"] is None
    assert answer["nodes"] == []
    missing = {each["what"]: each for each in answer["unknown"]}
    assert missing.keys() == {
        "certificatesigningrequests",
        "mutatingwebhookconfigurations",
        "nodes",
        "runtimeclasses",
        "settlepolicies",
    }
    for each in missing.values():
        program, chosen, *words = each["command"].split()
        assert (program, chosen) == ("kubectl", f"--kubeconfig={developer}")
        assert own.kubectl(chosen, *words).stdout.strip() == "no", each["command"]
        assert own.kubectl(*words).stdout.strip() == "yes"
    text = podsettle("explain", build, "--kubeconfig", developer)
    assert text.returncode == 0, text.stderr
    assert "settlepolicies: it needs the right to list settlepolicies" in text.stdout


def test_pod_that_may_not_be_read_is_an_error_that_names_the_right(
    own: KubeCluster, developer: Path
) -> None:
    assert own.create_pod(simple_pod("secret", "elsewhere")).status == 201
    done = podsettle("explain", "secret", "-n", "elsewhere", "--kubeconfig", developer)
    assert done.returncode == 2
    assert "needs the right to get pods/secret in namespace elsewhere" in done.stderr
    absent = podsettle("explain", "absent", "--kubeconfig", developer)
    assert absent.returncode == 2
    assert "pod/absent in namespace ci: it does not exist" in absent.stderr


def test_deployment_is_explained_by_its_template_and_its_pods(own: KubeCluster) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": web_spec()}
    created = own.create(
        "/apis/apps/v1/namespaces/ci/deployments",
        {
            "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
        },
    )
    for name, skip in (("web-5d-a", None), ("web-5d-b", "true"), ("web-5d-c", None)):
        own.create("/api/v1/namespaces/ci/pods", pod_of("web-5d", name, skip))
    other = pod_of("other-5d", "other-5d-a", None)
    own.create("/api/v1/namespaces/ci/pods", other)
    assert created["metadata"]["name"] == "web"
    answer = explained(own.kubeconfig, "deploy/web", "-n", "ci")
    assert answer["verdict"] == "podsettle would change the next pod of this workload."
    assert [(each["count"], each["examples"]) for each in answer["pods"]] == [
        (2, ["web-5d-a", "web-5d-c"]),
        (1, ["web-5d-b"]),
    ]
    assert "prepare is kept alive for at least 500 ms" in answer["pods"][0]["state"]
    # The author of the second pod does not want the remedy.
    assert answer["symptoms"] == []
    (need,) = answer["nodes"]
    assert need["remedy"] == "postInitSleep"


def web_spec() -> Json:
    # A Deployment's pods are always restarted, so only their init containers are wrapped.
    return {**simple_pod("x")["spec"], "restartPolicy": "Always"}


def uid_of(replica_set: str) -> str:
    return f"uid-of-{replica_set}"


def pod_of(replica_set: str, name: str, skip: str | None) -> Json:
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {"app": "web", "pod-template-hash": "5d"},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": replica_set,
                "uid": uid_of(replica_set),
                "controller": True,
            }
        ],
    }
    if skip:
        metadata["annotations"] = {"podsettle.dev/skip": skip}
    return {"metadata": metadata, "spec": web_spec()}


@pytest.fixture
def excluded(own: KubeCluster) -> Iterator[str]:
    """A pod of a time at which the webhook configuration excludes the namespace ci."""
    expression = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["ci"]}
    select_namespaces(own, {"matchExpressions": [expression]})
    await_that(lambda: not is_called(own, "ci"), "the namespace is excluded")
    assert own.create_pod(simple_pod("excluded", "ci")).status == 201
    yield "excluded"
    select_namespaces(own, {})
    await_that(lambda: is_called(own, "ci"), "the namespace is covered again")


def select_namespaces(cluster: KubeCluster, selector: Json) -> None:
    patch = [{"op": "add", "path": "/webhooks/0/namespaceSelector", "value": selector}]
    what = ("mutatingwebhookconfiguration", "podsettle")
    cluster.kubectl("patch", *what, "--type=json", "-p", json.dumps(patch))


def test_pod_of_an_excluded_namespace_is_promised_nothing(own: KubeCluster, excluded: str) -> None:
    answer = explained(own.kubeconfig, f"pod/{excluded}", "-n", "ci")
    assert answer["called"] == "False"
    assert "the API server does not call podsettle" in answer["verdict"]
    assert any("excludes namespace ci by name" in note for note in answer["notes"])
    done = podsettle("scan", "-n", "ci", "--kubeconfig", own.kubeconfig, "-o", "json")
    assert done.returncode == 1, done.stderr
    unsettled = json.loads(done.stdout)["symptoms"][-1]
    sentences = {each["workload"]: each["sentence"] for each in unsettled["findings"]}
    assert "excludes namespace ci by name" in sentences["Pod/excluded"]
    assert "doctor" in unsettled["advice"]


async def lists_of_configurations(cluster: KubeCluster) -> float:
    """Return how many times the API server has listed the webhook configurations."""
    async with await ApiServer.connect(kubeconfig=str(cluster.kubeconfig)) as server:
        scrape = (await server.fetch("GET", "/metrics")).content.decode()
    wanted = ('resource="mutatingwebhookconfigurations"', 'verb="LIST"')
    return sum(
        float(line.rpartition(" ")[2])
        for line in scrape.splitlines()
        if line.startswith("apiserver_request_total{") and all(text in line for text in wanted)
    )


async def test_webhook_configurations_are_listed_once(
    own: KubeCluster, build: str, tmp_path: Path
) -> None:
    """Without the right to list Deployments, they name the namespace of the installation too."""
    group = "admissionregistration.k8s.io"
    read = {"verbs": ["get", "list"]}
    kubeconfig, _ = account_with(
        own,
        tmp_path,
        {"apiGroups": [""], "resources": ["pods", "events"], **read},
        {"apiGroups": [group], "resources": ["mutatingwebhookconfigurations"], **read},
    )
    before = await lists_of_configurations(own)
    explained(kubeconfig, f"pod/{build}", "-n", "ci")
    # The API server counts a request after it has answered it.
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (lists := await lists_of_configurations(own)) == before:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.02)
    assert lists == before + 1
