"""woodpecker#5550: the kubelet of a new node has no serving certificate, so its logs are refused.

The pods are those of woodpecker `pipeline/backend/kubernetes/pod.go` (`mkPod`,
`podInitContainer`). Its `TailStep` opens the log once the phase is Running, and the phase is
Pending while init containers run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_scenario import PODS, DocScenario, containers
from tests.support.factories import IMAGE
from tests.support.fake_kubelet import Kubelet, Record
from tests.support.kube.cluster import KubeCluster
from tests.support.kubelet_status import RUNNING, Pod, running, terminated
from tests.support.reviews import load_pod

GATE = "podsettle-kubelet-gate"
STEP = "wp-01he8bebctabr3kgk0qj36d2me"
T = 1_780_000_000_000_000_000


@pytest.fixture
def page_name() -> str:
    return "kubelet-gate"


def test_page_quotes_the_report(scenario: DocScenario) -> None:
    assert (
        'workflow finished with error Get "https://10.0.9.147:10250/containerLogs/...": remote '
        "error: tls: internal error"
    ) in scenario.page.sections["Symptom"]


@pytest.mark.parametrize("name", ["woodpecker-step", "woodpecker-plugin-init-permission"])
def test_gated_step_stays_pending_until_its_kubelet_completes_a_handshake(
    scenario: DocScenario, name: str
) -> None:
    pod = load_pod(PODS / f"{name}.yaml")
    scenario.apply()
    found = scenario.admit(pod)
    assert found.reasons == {"kubeletGate": "Applied"}
    assert found.warnings == []
    # Behind all other init containers: they overlap with the wait.
    *others, gate = containers(found.after).values()
    assert others == list(containers(pod).values())
    assert gate["name"] == GATE
    assert gate["image"] == IMAGE
    assert gate["args"] == ["wait-kubelet", "--timeout", "60s"]
    assert gate["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": "status.hostIP"}}
    assert containers(found.after, "containers") == containers(pod, "containers")
    scenario.preview(pod)


def test_logs_command_prints_the_log_once_the_kubelet_has_a_certificate(
    scenario: DocScenario, cluster: KubeCluster, namespace: str, kubelet: Kubelet, tmp_path: Path
) -> None:
    step = Pod(cluster, namespace, STEP, (STEP,), node=kubelet.node)
    step.say("Running", {STEP: RUNNING})
    kubelet.certificate_issued = False
    kubelet.current.write(Record(T, b"+ gradle build"))
    replaced = {"POD": STEP, "NAMESPACE": namespace}
    arguments = [replaced.get(word, word) for word in scenario.page.command("logs").arguments]
    with running(cluster.kubeconfig, tmp_path, *arguments) as command:
        command.await_word("remote error: tls: internal error", times=2)
        kubelet.certificate_issued = True
        command.await_output(b"+ gradle build\n")
        kubelet.current.end()
        step.say("Succeeded", {STEP: terminated(0)})
        assert command.end() == 0
    assert command.stdout == b"+ gradle build\n"
