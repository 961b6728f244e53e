"""woodpecker#6672: the phase says Succeeded before the container's terminated state is there.

The pod is that of woodpecker `pipeline/backend/kubernetes/pod.go`: one container, named like it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_scenario import DocScenario
from tests.support.kube.cluster import KubeCluster
from tests.support.kubelet_status import RUNNING, Pod, running, terminated
from tests.support.process import PODSETTLE

STEP = "wp-01he8bebctabr3kgk0qj36d2me"


@pytest.fixture
def page_name() -> str:
    return "wait-and-logs"


@pytest.fixture
def step(cluster: KubeCluster, namespace: str) -> Pod:
    return Pod(cluster, namespace, STEP, (STEP,))


def test_page_quotes_the_report(scenario: DocScenario) -> None:
    assert (
        "no terminated state found for container wp-XXX/wp-XXX" in scenario.page.sections["Symptom"]
    )


def test_page_contains_no_policy(scenario: DocScenario) -> None:
    assert scenario.page.policies == []
    assert scenario.page.sections["Policy"].strip().startswith("None.")
    assert "A changed pod cannot cure this" in scenario.page.sections["Policy"]


def test_wait_returns_the_exit_code_that_is_reported_after_the_phase(
    scenario: DocScenario, cluster: KubeCluster, namespace: str, step: Pod, tmp_path: Path
) -> None:
    replaced = {"POD": STEP, "NAMESPACE": namespace}
    arguments = [replaced.get(word, word) for word in scenario.page.command("wait").arguments]
    step.say("Running", {STEP: RUNNING})
    with running(cluster.kubeconfig, tmp_path, *arguments) as command:
        step.say("Succeeded", {STEP: RUNNING})
        command.await_word("has no terminated state", times=2)
        step.say("Succeeded", {STEP: terminated(0)})
        assert command.end() == 0
        # As the page shows it, of a pod of another name.
        (shown,) = scenario.page.command("wait").output
        assert command.stdout.decode() == shown.replace("step-1/step", f"{STEP}/{STEP}") + "\n"


@pytest.mark.parametrize("known", [True, False])
def test_script_distinguishes_a_known_exit_code_from_an_unknown_one(
    scenario: DocScenario,
    cluster: KubeCluster,
    namespace: str,
    step: Pod,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    known: bool,
) -> None:
    script, _whole = (b.text for b in scenario.page.blocks if b.language == "sh")
    monkeypatch.setenv("PATH", str(Path(PODSETTLE).parent), prepend=":")
    monkeypatch.setenv("pod", STEP)
    monkeypatch.setenv("namespace", namespace)
    whole = ("-c", script + 'echo "code $code"')
    with running(cluster.kubeconfig, tmp_path, *whole, program="sh") as command:
        step.say("Failed" if known else "Running", {STEP: RUNNING})
        if known:
            command.await_word("has no terminated state")
            step.say("Failed", {STEP: terminated(3)})
        else:
            step.delete()
        assert command.end() == 0
    assert command.stdout == (b"code 3\n" if known else b"code 2\n")
    assert ("is not known" in command.stderr) is not known
