"""A new user's way from the symptoms in a cluster to their cure, by the commands of the page."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml

from tests.support.e2e_pods import create
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.markdown import Page
from tests.support.native_policies import API_VERSION, FLAGS
from tests.support.page_commands import shell_texts
from tests.support.paths import DOCS, EXAMPLES
from tests.support.planted_cluster import plant
from tests.support.planted_symptoms import PLANTS, RUNTIME_CLASS
from tests.support.process import PODSETTLE
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from tools.build import programs

pytestmark = pytest.mark.slow

Run: TypeAlias = Callable[[str], subprocess.CompletedProcess[str]]
SYMPTOMS = {
    "umount": "containerd-slow-umount",
    "relabel": "crio-selinux-relabel",
    "fs-group": "fsgroup-ownership-walk",
}
"""The symptoms of reports 003 and 004 and of a change of owners, by the planted pod's name."""
INSTALLED = (
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,customresourcedefinitions"
)


@pytest.fixture
def cluster() -> Iterator[KubeCluster]:
    """A cluster without podsettle, whose nodes have the classes of `podsettle node-config`."""
    documents = yaml.safe_load_all((EXAMPLES / "cluster.yaml").read_text())
    relabel = next(e for e in documents if e["metadata"]["name"] == "selinux-fix-runtime-class")
    with KubeCluster.start(*FLAGS) as started:
        for each in (RUNTIME_CLASS, relabel):
            started.create("/apis/node.k8s.io/v1/runtimeclasses", each)
        # Each has a namespace of its own, because a pod cannot have two RuntimeClasses.
        for pod in PLANTS:
            if pod.name in SYMPTOMS:
                plant(started, pod, pod.name)
        yield started


@pytest.fixture
def run(cluster: KubeCluster, tmp_path: Path) -> Run:
    """Run a command line as an administrator of the cluster."""
    kubectl = programs().kubectl
    assert kubectl is not None
    (tmp_path / "kubectl").symlink_to(kubectl)
    (tmp_path / "podsettle").symlink_to(PODSETTLE)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(cluster.kubeconfig)}

    def run_line(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", text],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    return run_line


def next_pods(cluster: KubeCluster) -> dict[str, Json]:
    """Return the pods that the workloads with the symptoms would create now."""
    pods = {pod.name: pod.pod(pod.name) for pod in PLANTS if pod.name in SYMPTOMS}
    for pod in pods.values():
        pod["metadata"]["name"] = "next"
        del pod["spec"]["nodeName"]
    return {name: create(cluster, pod, dry_run=True) for name, pod in pods.items()}


def is_settled(pod: Json) -> bool:
    return "podsettle.dev/applied" in pod["metadata"].get("annotations", {})


def test_commands_of_the_page_lead_from_symptoms_to_reports_and_to_their_cure(
    cluster: KubeCluster, run: Run
) -> None:
    lines = list(shell_texts(Page(DOCS / "export.md")))
    scan, report, cure = (line for line in lines if "podsettle scan" in line)
    scanned = run(scan)
    assert scanned.returncode == 1, scanned.stderr
    summary = scanned.stdout.partition("\n\n")[0]
    for symptom in SYMPTOMS.values():
        assert f"{symptom}: 1 pod" in summary
    # Before Kubernetes 1.36, the API needs flags, and the scan does not name the command.
    assert (report.strip() in summary) == (API_VERSION == "v1")
    pod = PLANTS[[each.name for each in PLANTS].index("fs-group")].pod("fs-group")
    pod["metadata"]["name"] = "next"

    def warnings() -> list[str]:
        return cluster.create_pod(pod, dry_run=True).warnings

    assert warnings() == []
    reported = run(report)
    assert reported.returncode == 0, reported.stderr
    await_that(lambda: bool(warnings()), "the policies report")
    assert "by its remedy fsGroupChangePolicy" in warnings()[0]
    assert not any(map(is_settled, next_pods(cluster).values()))
    if API_VERSION != "v1":  # As the page says.
        cure = cure.replace("export", f"export --api-version {API_VERSION}")
    applied = run(cure)
    assert applied.returncode == 0, applied.stderr
    await_that(lambda: all(map(is_settled, next_pods(cluster).values())), "next pods are settled")
    # The policies that report see the pods after all changes.
    assert warnings() == []
    pods = next_pods(cluster)
    specs = {name: pod["spec"] for name, pod in pods.items()}
    assert specs["umount"]["runtimeClassName"] == "overlay-volatile"
    assert specs["relabel"]["runtimeClassName"] == "selinux-fix-runtime-class"
    annotations = pods["relabel"]["metadata"]["annotations"]
    assert annotations["try-skip-volume-selinux-label.crio.io"] == "true"
    assert specs["fs-group"]["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert run(f"kubectl get {INSTALLED}").stdout == ""
    for remove in (line for line in lines if "kubectl delete" in line and "admissionpol" in line):
        removed = run(remove)
        assert removed.returncode == 0, removed.stderr
    await_that(lambda: not any(map(is_settled, next_pods(cluster).values())), "all are removed")
