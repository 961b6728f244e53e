"""CRI-O visits every file of a volume at each start ("CreateContainerError - Openshift Error").

The pod is the report's: a cron job's on OpenShift, with a claim of millions of files.
"""

from __future__ import annotations

import base64
import tomllib

import pytest
import yaml

from tests.support.doc_scenario import PODS, DocScenario, of_kind
from tests.support.factories import Json, node
from tests.support.reviews import load_pod
from webhook.core.policy.model import parse_policy

OLD = "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel"
NEW = "try-skip-volume-selinux-label.crio.io"
WORKER = {"node-role.kubernetes.io/worker": ""}
NODE = of_kind("Node", node("a", "cri-o://1.33.12", "v1.33.12", WORKER))
LABELS = {"storage": "large"}
LEVEL = {"openshift.io/sa.scc.mcs": "s0:c26,c15"}
OPENSHIFT = of_kind(
    "Namespace",
    {"metadata": {"name": "sample-namespace", "labels": LABELS, "annotations": LEVEL}},
)


@pytest.fixture
def page_name() -> str:
    return "selinux-relabel"


@pytest.fixture
def cron() -> Json:
    return load_pod(PODS / "openshift-cronjob-pvc.yaml")


@pytest.fixture
def printed(scenario: DocScenario) -> dict[str, Json]:
    """The objects that the commands of the page print, by kind."""
    shown = [c for c in scenario.page.commands if c.arguments[:2] == ("node-config", "crio")][:2]
    assert [typed.arguments[-1] for typed in shown] == ["machineconfig", "runtimeclass"]
    documents = [yaml.safe_load(scenario.run(*typed.arguments)) for typed in shown]
    return {document["kind"]: document for document in documents}


def test_page_quotes_the_report(scenario: DocScenario) -> None:
    symptom = scenario.page.sections["Symptom"]
    assert "Error: context deadline exceeded" in symptom
    assert "CreateContainerError" in symptom
    assert "requests that are timing out in CRI-O due to system load. Currently at stage" in symptom


def test_handler_in_the_machine_config_allows_the_annotation(
    scenario: DocScenario, printed: dict[str, Json]
) -> None:
    machine_config, made = printed["MachineConfig"], printed["RuntimeClass"]
    (file,) = machine_config["spec"]["config"]["storage"]["files"]
    content = base64.b64decode(file["contents"]["source"].partition("base64,")[2]).decode()
    runtimes = tomllib.loads(content)["crio"]["runtime"]["runtimes"]
    assert OLD in runtimes[made["handler"]]["allowed_annotations"]
    for name in (machine_config["metadata"]["name"], made["metadata"]["name"], file["path"]):
        assert f"`{name}`" in scenario.page.sections["Node configuration"]


def test_workload_for_other_distributions_allows_the_annotation(scenario: DocScenario) -> None:
    drop_in = next(c for c in scenario.page.commands if c.arguments[-1:] == ("dropin",))
    (workload,) = tomllib.loads("\n".join(drop_in.output))["crio"]["runtime"]["workloads"].values()
    assert workload == {"activation_annotation": OLD, "allowed_annotations": [OLD]}


def test_pod_of_the_cron_job_gets_the_annotations_that_skip_relabelling(
    scenario: DocScenario, printed: dict[str, Json], cron: Json
) -> None:
    scenario.apply(OPENSHIFT, NODE, printed["RuntimeClass"])
    found = scenario.admit(cron)
    assert found.reasons == {"skipSELinuxRelabel": "Applied"}
    assert found.warnings == []
    assert found.after["spec"] == {
        **cron["spec"],
        "runtimeClassName": printed["RuntimeClass"]["metadata"]["name"],
    }
    annotations = found.after["metadata"]["annotations"]
    assert annotations[OLD] == annotations[NEW] == "true"
    scenario.preview(cron)


def test_both_selinux_remedies_apply_together_on_kubernetes_1_37(
    scenario: DocScenario, printed: dict[str, Json], cron: Json
) -> None:
    (policy,) = scenario.page.policies
    (fragment,) = scenario.page.fragments
    policy["spec"].update(fragment)
    parse_policy(policy)
    scenario.apply(OPENSHIFT, of_kind("Node", node("a", "cri-o://1.37.0", "v1.37.0")),
                printed["RuntimeClass"])  # fmt: skip
    found = scenario.admit(cron)
    assert found.reasons == {"skipSELinuxRelabel": "Applied", "seLinuxChangePolicy": "Applied"}
    assert found.after["spec"]["securityContext"]["seLinuxChangePolicy"] == "Recursive"
