"""Tests of the scripts and the Role in docs/wait-and-logs.md."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.support.fake_kubelet import Kubelet, Record
from tests.support.kube.cluster import KubeCluster
from tests.support.kubelet_status import RUNNING, Pod, running, terminated
from tests.support.markdown import Page
from tests.support.paths import DOCS
from tests.support.process import PODSETTLE
from tests.support.service_accounts import kubeconfig_of_an_account_with
from tests.support.waiting import await_that
from tools.build import programs

pytestmark = pytest.mark.slow

PAGE = Page(DOCS / "wait-and-logs.md")
SHORT, WHOLE = (block.text for block in PAGE.blocks if block.language == "sh")
T = 1_780_000_000_000_000_000


def test_short_script_of_the_page_begins_as_the_whole_one() -> None:
    first = SHORT.splitlines()[0].replace('-n "$namespace"', "-c step")
    assert first in WHOLE


@pytest.mark.parametrize("known", [True, False])
def test_script_of_the_page_distinguishes_a_failed_step_from_an_unknown_exit_code(
    cluster: KubeCluster,
    namespace: str,
    kubelet: Kubelet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    known: bool,
) -> None:
    kubectl = programs().kubectl
    assert kubectl is not None
    path = [str(Path(PODSETTLE).parent), str(kubectl.parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    step = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "step-1"},
        "spec": {
            "nodeName": kubelet.node,
            "restartPolicy": "Never",
            "containers": [{"name": "step", "image": "busybox"}],
        },
    }
    (tmp_path / "step.yaml").write_text(json.dumps(step))
    kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig", namespace=namespace)
    with running(kubeconfig, tmp_path, "-c", WHOLE, program="sh") as command:
        pod = Pod(cluster, namespace, existing=True)
        await_that(lambda: pod.exists, "the script has made its pod")
        pod.say("Running", {"step": RUNNING})
        kubelet.current.write(Record(T, b"hello"))
        command.await_output(b"hello\n")
        if known:
            pod.say("Failed", {"step": terminated(3)})
        else:
            pod.delete()
        kubelet.current.end()
        assert command.end() == (3 if known else 75)
        assert command.stdout.startswith(b"hello\n")
        assert ("is not known" in command.stderr) is not known


def test_role_of_the_page_is_sufficient_for_wait_and_logs(
    cluster: KubeCluster, namespace: str, kubelet: Kubelet, tmp_path: Path
) -> None:
    (role,) = (yaml.safe_load(each.text) for each in PAGE.blocks if "pods/log" in each.text)
    kubeconfig = kubeconfig_of_an_account_with(cluster, namespace, role["rules"], tmp_path)
    pod = Pod(cluster, namespace, node=kubelet.node)
    pod.say("Succeeded", {"step": terminated(0)})
    kubelet.current.write(Record(T, b"hello"))
    kubelet.current.end()
    with running(kubeconfig, tmp_path, "logs", "step-1", "-f") as command:
        assert command.end() == 0
        assert command.stdout == b"hello\n"
    with running(kubeconfig, tmp_path, "wait", "step-1") as command:
        assert command.end() == 0
        assert command.stderr == ""
        assert command.stdout.decode().splitlines() == [*PAGE.command("wait").output]
