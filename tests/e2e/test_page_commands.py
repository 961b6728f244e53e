"""The command lines of every page, on an API server with planted symptoms.

A page's placeholders stand for objects that exist there. `tests/unit/docs` runs the commands that
need no cluster.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import planted_cluster
from tests.support.factories import Json
from tests.support.kube.cluster import KubeCluster
from tests.support.kube.custom_resources import create_crd
from tests.support.markdown import ALL, Page
from tests.support.page_commands import programs_of, shell_texts, write_files
from tests.support.planted_symptoms import CONTAINERD, RUNTIME_CLASS, ended
from tests.support.policy_objects import install_crd
from tests.support.process import PODSETTLE
from tests.support.waiting import TIMEOUT_SECONDS
from tests.support.webhook_configuration import PATH, as_the_chart_writes_it
from tools.build import programs

pytestmark = pytest.mark.slow

AVAILABLE = {"podsettle", "kubectl", "oc", "grep", "jq", "awk", "set"}
PLACEHOLDERS = {
    "POD": "ended",
    "NAMESPACE": "ci",
    "CONTAINER": "step",
    "IMAGE": "registry.example/linger:1",
    "NODE": CONTAINERD,
    "NAME-OF-THE-CLASS": "overlay-volatile",
}
NOT_RUN = {
    "a release: the tests of the chart and of doctor run it": (
        r"podsettle-system|podsettle doctor|settlepolicy |charts/podsettle|delete crd"
        r"|clusterrolebinding"
    ),
    "a kubelet, or a webhook": (
        r"podsettle logs|kubectl (logs|exec|run)|/proxy/|/metrics|\btrial\b"
    ),
    "a registry": r"--look-up-images|imageregistry",
    "a node's files": r"/etc/containerd|/proc/pressure|oc debug",
    "the API of native policies: tests/e2e/export runs it": (
        r"podsettle export - |mutatingadmissionpolicies"
    ),
    "a user who ends it": r" -w\b|podsettle serve",
    "a choice of the parts in brackets": r"\[-",
}
"""What a command line needs that this cluster does not have, and the lines that need it."""

MACHINE_CONFIGS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "machineconfigs.machineconfiguration.openshift.io"},
    "spec": {
        "group": "machineconfiguration.openshift.io",
        "scope": "Cluster",
        "names": {"kind": "MachineConfig", "plural": "machineconfigs"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def runnable(text: str) -> bool:
    if any(re.search(pattern, text) for pattern in NOT_RUN.values()):
        return False
    return programs_of(text) <= AVAILABLE


PAGES = [page for page in map(Page, ALL) if any(map(runnable, shell_texts(page)))]


@pytest.fixture(scope="module")
def planted() -> Iterator[KubeCluster]:
    with KubeCluster.start() as cluster:
        install_crd(cluster)
        create_crd(cluster, MACHINE_CONFIGS)
        planted_cluster.fill(cluster, pods=60, nodes=10)
        # Pages create one of this name, and the handler of a RuntimeClass cannot be changed.
        name = RUNTIME_CLASS["metadata"]["name"]
        deleted = cluster.request("DELETE", f"/apis/node.k8s.io/v1/runtimeclasses/{name}")
        assert deleted.status == 200, deleted.body
        cluster.namespace("woodpecker")
        for namespace in ("ci", "woodpecker", "default"):
            for name in (PLACEHOLDERS["POD"], "build-x7k2p", "build-pod"):
                _create_ended_pod(cluster, namespace, name)
        for namespace, name in (("ci", "web"), ("woodpecker", "woodpecker-agent")):
            _create_deployment(cluster, namespace, name)
        yield cluster


def _create_ended_pod(cluster: KubeCluster, namespace: str, name: str) -> None:
    container = {"image": "registry.example/step:1", "command": ["sh", "-c", "true"]}
    pod: Json = {
        "metadata": {"name": name, "labels": {"tekton.dev/taskRun": name}},
        "spec": {
            "restartPolicy": "Never",
            "initContainers": [{"name": "prepare", **container}],
            "containers": [{"name": "step", **container}],
        },
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    cluster.create(path, pod)
    now = "2026-11-22T10:00:00Z"
    status = ended("step", 0, 0, 0)
    status["state"]["terminated"] |= {"startedAt": now, "finishedAt": now, "reason": "Completed"}
    patch = {"status": {"phase": "Failed", "containerStatuses": [status]}}
    answer = cluster.request("PATCH", f"{path}/{name}/status", patch)
    assert answer.status == 200, answer.body


def _create_deployment(cluster: KubeCluster, namespace: str, name: str) -> None:
    labels = {"app": name}
    container = {"name": name, "image": f"registry.example/{name}:v3.15.0", "command": ["serve"]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    body = {"metadata": {"name": name}, "spec": spec}
    cluster.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", body)


@pytest.fixture(scope="module")
def environment(planted: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an administrator. `oc` understands the commands of kubectl."""
    directory = tmp_path_factory.mktemp("bin")
    kubectl = programs().kubectl
    assert kubectl is not None
    for name in ("kubectl", "oc"):
        (directory / name).symlink_to(kubectl)
    for name in ("podsettle", "kubectl-settle"):
        (directory / name).symlink_to(Path(PODSETTLE).with_name(name))
    return {
        **os.environ,
        "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(directory),
        "KUBECONFIG": str(planted.kubeconfig),
        "pod": PLACEHOLDERS["POD"],
        "namespace": PLACEHOLDERS["NAMESPACE"],
    }


@pytest.fixture
def configured(planted: KubeCluster) -> None:
    """Create the configuration of an installation, unless a page has left it there.

    Its Service does not exist, and pods are created without it.
    """
    answer = planted.request("POST", PATH, as_the_chart_writes_it())
    assert answer.status in (201, 409), answer.body


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_command_lines_of_a_page_run(
    page: Page, environment: dict[str, str], tmp_path: Path
) -> None:
    write_files(page, tmp_path)
    failed = []
    for text in filter(runnable, shell_texts(page)):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", _without_placeholders(text)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        # A scan ends with 1 if it finds something. Of a selection of pods it may find nothing.
        expected = {1} if "podsettle scan" in text else {0}
        if done.returncode not in (expected | {0} if "scan -l" in text else expected):
            failed.append(f"{text.strip()}\n  {done.returncode}: {done.stdout}{done.stderr}")
    assert failed == []


def test_most_command_lines_with_podsettle_run() -> None:
    """If the parser found no command, or every line were left out, nothing would be tested."""
    lines = [text for page in PAGES for text in shell_texts(page) if "podsettle " in text]
    assert sum(map(runnable, lines)) > 30
    for reason, pattern in NOT_RUN.items():
        texts = (text for page in map(Page, ALL) for text in shell_texts(page))
        assert any(re.search(pattern, text) for text in texts), reason


def _without_placeholders(text: str) -> str:
    # Not the heading of a column, as in POD:.metadata.name.
    names = "|".join(sorted(PLACEHOLDERS, key=len, reverse=True))
    return re.sub(
        rf"(?<![\w'.,/-])({names})(?![\w:.-])", lambda found: PLACEHOLDERS[found[1]], text
    )
