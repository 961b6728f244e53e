"""tektoncd/pipeline#9654: CRI-O reports 255 for init containers that end within milliseconds.

The pods are those of tekton pipeline `pkg/pod/pod.go` (prepare) and `pkg/pod/script.go`
(place-scripts), as an admission webhook sees them.
"""

from __future__ import annotations

import re

import pytest
import yaml

from tests.support.doc_scenario import PODS, DocScenario, containers, of_kind
from tests.support.factories import LINGER, Json, node
from tests.support.kube.cluster import KubeCluster
from tests.support.markdown import Page
from tests.support.paths import DOCS
from tests.support.reviews import load_pod
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.versions import Runtime, parse_version

AFFECTED = of_kind("Node", node("a", "cri-o://1.33.12", "v1.33.12"))
NEXT = of_kind("Node", node("c", "cri-o://1.35.2", "v1.35.2"))
RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [255]}}


@pytest.fixture
def page_name() -> str:
    return "exit-255"


@pytest.fixture
def taskrun() -> Json:
    return load_pod(PODS / "tekton-taskrun-sidecar.yaml")


def test_page_quotes_the_report(scenario: DocScenario) -> None:
    symptom = scenario.page.sections["Symptom"]
    assert 'init container failed, "prepare" exited with code 255' in symptom
    assert "Entrypoint initialization" in symptom
    assert "Failed to update container state for <container-id>: stdout: , stderr: " in symptom


def test_policies_as_printed_change_nothing_and_report_what_they_would_do(
    scenario: DocScenario, taskrun: Json
) -> None:
    scenario.apply(NEXT, policies=slice(2), without_audit=False)
    found = scenario.admit(taskrun)
    assert found.unchanged
    assert found.reasons == dict.fromkeys(
        ("postInitSleep prepare", "postInitSleep place-scripts", "retryInitExit255 prepare"),
        "WouldApply",
    )


def test_option_a_wraps_prepare_and_place_scripts(scenario: DocScenario, taskrun: Json) -> None:
    scenario.apply(AFFECTED)
    found = scenario.admit(taskrun)
    before, after = containers(taskrun), containers(found.after)
    for name in ("prepare", "place-scripts"):
        assert found.reasons[f"postInitSleep {name}"] == "Applied"
        assert after[name].get("args") == before[name].get("args")
    assert after["prepare"]["command"] == [*LINGER, *before["prepare"]["command"]]
    assert after["place-scripts"]["command"][0] == before["place-scripts"]["command"][0] == "sh"
    assert list(after) == ["podsettle-linger", *before]
    assert containers(found.after, "containers") == containers(taskrun, "containers")
    assert found.warnings == []
    scenario.preview(taskrun)


def test_option_b_adds_a_restart_rule_for_exit_code_255_to_prepare(
    scenario: DocScenario, taskrun: Json
) -> None:
    scenario.apply(NEXT, policies=slice(1, 2))
    found = scenario.admit(taskrun)
    assert found.reasons == {"retryInitExit255 prepare": "Applied"}
    prepare = containers(found.after)["prepare"]
    assert prepare == {
        **containers(taskrun)["prepare"],
        "restartPolicy": "Never",
        "restartPolicyRules": [RULE],
    }


def test_option_c_applies_options_a_and_b_to_the_same_container(
    scenario: DocScenario, taskrun: Json
) -> None:
    scenario.apply(NEXT, policies=slice(2))
    found = scenario.admit(taskrun)
    prepare = containers(found.after)["prepare"]
    assert prepare["command"][: len(LINGER)] == LINGER
    assert prepare["restartPolicyRules"] == [RULE]
    assert "restartPolicy" not in containers(found.after)["place-scripts"]


def test_page_names_the_first_releases_with_the_fix(scenario: DocScenario) -> None:
    named = re.findall(r"1\.3\d\.\d+", scenario.page.sections["Node configuration"])
    assert sorted(named) == ["1.33.13", "1.34.9", "1.35.3", "1.36.0"]
    (defect,) = (each for each in DEFECTS if each.id == "cri-o-9840")
    for text in named:
        version = parse_version(text)
        assert version is not None
        assert not defect.status_on(Runtime("cri-o", version), None).needs_remedy
        if version.patch:
            before = version._replace(patch=version.patch - 1)
            assert defect.status_on(Runtime("cri-o", before), None).needs_remedy


def test_api_server_accepts_the_job_that_replaces_pods_with_exit_code_255(
    cluster: KubeCluster, namespace: str
) -> None:
    blocks = Page(DOCS / "exit-255.md").blocks
    (job,) = (yaml.safe_load(b.text) for b in blocks if "podFailurePolicy" in b.text)
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All&fieldValidation=Strict"
    answer = cluster.request("POST", path, job)
    assert answer.status == 201, answer.body
    (rule,) = answer.body["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "Ignore"
    assert rule["onExitCodes"] == {"operator": "In", "values": [255]}
