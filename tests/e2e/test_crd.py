"""Tests of the CRD: a real API server and `parse_policy` accept the same policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings

from tests.data.invalid_policies import (
    EXAMPLE_POLICIES,
    RIGHT,
    WRONG,
    gate,
    labels,
    requirement,
    sleep,
)
from tests.data.policy_differences import LENIENT, STRICT
from tests.support.examples import FULL_EXAMPLES
from tests.support.factories import Json, policy_document
from tests.support.kube.cluster import Answer, KubeCluster
from tests.support.kube.custom_resources import DEFINITIONS, await_crd, condition_of_crd
from tests.support.paths import CRD
from tests.support.policy_documents import DOCUMENTS
from tests.support.policy_documents import REMEDIES as GENERATED_REMEDIES
from tests.support.policy_objects import POLICIES, apply_crd
from tests.support.waiting import await_that
from webhook.core.policy.crd import CRD_NAME
from webhook.core.policy.model import SettlePolicy, parse_policy
from webhook.core.policy.validation_errors import InvalidPolicyError
from webhook.core.remedies import REMEDIES

DEFINITION = f"{DEFINITIONS}/{CRD_NAME}"


@pytest.fixture(scope="module")
def served(cluster: KubeCluster) -> Iterator[KubeCluster]:
    """A cluster with the CRD of the chart. All policies are deleted at the end."""
    apply_crd(cluster)
    yield cluster
    cluster.request("DELETE", POLICIES)


def judged(cluster: KubeCluster, document: Json) -> Answer:
    """Create a policy with strict field validation, as kubectl does, and return the answer."""
    return cluster.request("POST", f"{POLICIES}?dryRun=All&fieldValidation=Strict", document)


def parsed(document: Json) -> SettlePolicy | None:
    try:
        return parse_policy(document)
    except InvalidPolicyError:
        return None


def test_api_server_stores_the_crd_unchanged(served: KubeCluster) -> None:
    assert condition_of_crd(served, CRD_NAME, "NamesAccepted") == "True"
    assert condition_of_crd(served, CRD_NAME, "NonStructuralSchema") is None
    body = yaml.safe_load(CRD.read_text(encoding="utf-8"))
    body["metadata"]["resourceVersion"] = served.request("GET", DEFINITION).body["metadata"][
        "resourceVersion"
    ]
    status, replaced, warnings = served.request("PUT", f"{DEFINITION}?dryRun=All", body)
    assert (status, warnings) == (200, []), replaced


@pytest.mark.parametrize("path", ["", *REMEDIES])
def test_kubectl_explains_every_remedy(path: str, served: KubeCluster) -> None:
    def explained() -> str:
        at = f"settlepolicy.spec.remedies.{path}".rstrip(".")
        return " ".join(served.kubectl("explain", at).stdout.split())

    # The API server publishes what it learned of a CRD a while later.
    await_that(lambda: "DESCRIPTION:" in explained(), "kubectl can explain policies")
    schema = yaml.safe_load(CRD.read_text(encoding="utf-8"))["spec"]["versions"][0]["schema"]
    node = schema["openAPIV3Schema"]
    for key in ("spec", "remedies", *filter(None, [path])):
        node = node["properties"][key]
    text = explained()
    assert node["description"] in text
    for key, inner in node.get("properties", {}).items():
        assert key in text
        assert inner["description"] in text


def test_valid_policies_are_accepted_and_read_back_as_the_model_reads_them(
    served: KubeCluster,
) -> None:
    faults = []
    for name, document in RIGHT.items():
        status, body, warnings = judged(served, document)
        if (status, warnings) != (201, []) or parse_policy(body).spec != parse_policy(
            document
        ).spec:
            faults.append((name, status, warnings, body))
    assert faults == []


def test_invalid_policies_are_refused_with_the_path_of_the_value(served: KubeCluster) -> None:
    """tests/unit/core/policy has the same policies for the model."""
    faults = []
    for name, wrong in WRONG.items():
        status, body, _ = judged(served, wrong.document)
        if status not in (400, 422) or (wrong.says or wrong.path) not in body["message"]:
            faults.append((name, status, body.get("message")))
    assert faults == []


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (sleep(sleep="61s"), "is longer than 1m, the maximum delay of a pod"),
        (sleep(sleep="0", minLifetime="0"), "minLifetime and sleep are both 0"),
        (sleep(initContainers=[]), "initContainers and containers are both empty"),
        (sleep(initContainers=[], containers=[]), "initContainers and containers are both empty"),
        (gate(timeout="0s"), "timeout is 0: leave the remedy out instead"),
        (gate(timeout="61s"), "is longer than 1m, the maximum delay of a pod"),
        (policy_document(remedies={}), "no remedy is set: name at least one"),
        (requirement("In"), "operator In needs values"),
        (requirement("DoesNotExist", values=["a"]), "operator DoesNotExist takes no values"),
        (labels({"ok": "", "a b": ""}), "a b is not a label key"),
        (labels({"ok": "", "a": None}), "a is empty, should be a string"),
        (WRONG["two classes"].document, "this is b, but runtimeClass.name is a"),
    ],
)
def test_validation_rule_has_the_message_of_podsettle(
    document: Json, said: str, served: KubeCluster
) -> None:
    message = judged(served, document).body["message"]
    assert said in message
    assert message.count("Invalid value") == 1


def test_values_that_only_the_api_server_accepts_have_no_effect(served: KubeCluster) -> None:
    faults = []
    for name, document in LENIENT.items():
        status, body, _ = judged(served, document)
        if parsed(document) is not None or status != 201 or parsed(body) is None:
            faults.append((name, status, body))
    assert faults == []


def test_model_accepts_values_that_the_api_server_refuses(served: KubeCluster) -> None:
    faults = []
    for name, document in STRICT.items():
        status = judged(served, document).status
        if parsed(document) is None or status not in (400, 422):
            faults.append((name, status))
    assert faults == []


def test_valid_and_invalid_documents_cover_every_remedy() -> None:
    assert GENERATED_REMEDIES.keys() == REMEDIES.keys()


def test_api_server_and_model_accept_the_same_generated_documents(served: KubeCluster) -> None:
    seen: Counter[bool] = Counter()

    @given(DOCUMENTS)
    def check_agreement(document: Json) -> None:
        policy = parsed(document)
        status, body, _ = judged(served, document)
        assert (status == 201) is (policy is not None), body
        if policy is not None:
            assert parse_policy(body).spec == policy.spec
        seen[policy is not None] += 1

    check_agreement()
    # The profile `quick` has fewer examples than that.
    least = 20 if settings().max_examples == FULL_EXAMPLES else 0
    assert min(seen[True], seen[False]) > least, seen


# What people do with kubectl.


@pytest.fixture
def applied(served: KubeCluster) -> Iterator[KubeCluster]:
    text = yaml.safe_dump_all(EXAMPLE_POLICIES.values(), sort_keys=False)
    done = served.kubectl("apply", "-f", "-", input=text)
    assert (done.returncode, done.stderr) == (0, "")
    yield served
    served.kubectl("delete", "-f", "-", input=text)


def test_every_example_reads_back_as_it_was_written(applied: KubeCluster) -> None:
    for name, document in EXAMPLE_POLICIES.items():
        body = applied.request("GET", f"{POLICIES}/{name}").body
        assert parse_policy(body).spec == parse_policy(document).spec


def condition(kind: str, status: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": "AllGood",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }


def test_kubectl_get_shows_the_printer_columns(applied: KubeCluster) -> None:
    status: Json = {
        "conditions": [
            condition("Accepted", "True"),
            condition("RuntimeClassesFound", "False"),
            condition("StillNeeded", "Unknown"),
        ],
        "observedGeneration": 1,
        "matchedNamespaces": 12,
    }
    path = f"{POLICIES}/tekton-on-crio/status"
    code, body, _ = applied.request("PATCH", path, {"status": status})
    assert code == 200, body
    shown = applied.kubectl("get", "settle", "tekton-on-crio").stdout.splitlines()
    assert shown[0].split() == [
        "NAME",
        "PRIORITY",
        "ACTION",
        "ACCEPTED",
        "CLASSES",
        "FOUND",
        "STILL",
        "NEEDED",
        "NAMESPACES",
        "AGE",
    ]
    assert shown[1].split()[:-1] == [
        *("tekton-on-crio", "100", "Mutate"),
        *("True", "False", "Unknown", "12"),
    ]
    wide = applied.kubectl("get", "settle", "tekton-on-crio", "-o", "wide").stdout
    assert wide.splitlines()[0].split()[-1] == "DESCRIPTION"
    assert EXAMPLE_POLICIES["tekton-on-crio"]["spec"]["description"] in wide


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"conditions": [condition("Accepted", "Maybe")]}, "status.conditions[0].status"),
        ({"conditions": [{"type": "Accepted"}]}, "status.conditions[0].reason"),
        ({"conditions": [condition("Accepted", "True")] * 2}, "Duplicate value"),
        ({"matchedNamespaces": -1}, "status.matchedNamespaces"),
    ],
)
def test_invalid_status_is_refused(change: Json, said: str, applied: KubeCluster) -> None:
    path = f"{POLICIES}/quick-jobs/status"
    code, body, _ = applied.request("PATCH", path, {"status": change})
    assert code == 422
    assert said in body["message"]


def test_writing_a_policy_does_not_change_its_status(applied: KubeCluster) -> None:
    path = f"{POLICIES}/quick-jobs"
    code, body, _ = applied.request("PATCH", path, {"status": {"matchedNamespaces": 5}})
    assert code == 200
    assert "status" not in body


@pytest.mark.slow
def test_new_default_does_not_change_stored_objects(tmp_path: Path) -> None:
    """What docs/kubelet-gate.md says of policies made while the default was 15 s."""
    text = CRD.read_text(encoding="utf-8")
    assert text.count("default: 30s") == 1  # kubeletGate.timeout
    earlier, policy = tmp_path / "crd.yaml", tmp_path / "policy.yaml"
    earlier.write_text(text.replace("default: 30s", "default: 15s"), encoding="utf-8")
    document = policy_document(remedies={"kubeletGate": {}})
    policy.write_text(yaml.safe_dump(document), encoding="utf-8")
    name = document["metadata"]["name"]
    columns = "NAME:.metadata.name,GATE:.spec.remedies.kubeletGate.timeout"

    with KubeCluster.start() as own:

        def gate_of_a_new_policy() -> str | None:
            fresh = document | {"metadata": {"name": "fresh"}}
            status, body, _ = own.request("POST", f"{POLICIES}?dryRun=All", fresh)
            timeout: str = body["spec"]["remedies"]["kubeletGate"]["timeout"]
            return timeout if status == 201 else None

        def gates() -> list[str]:
            return own.kubectl(
                "get", "settlepolicies", "-o", f"custom-columns={columns}"
            ).stdout.split()

        assert own.kubectl("apply", "--server-side", "-f", earlier).returncode == 0
        await_crd(own, CRD_NAME)
        assert own.kubectl("apply", "-f", policy).returncode == 0
        assert gates() == ["NAME", "GATE", name, "15s"]
        renew = ("apply", "--server-side", "--force-conflicts", "-f", CRD.parent)
        assert own.kubectl(*renew).returncode == 0
        await_that(lambda: gate_of_a_new_policy() == "30s", "the new default is in force")
        assert own.kubectl("apply", "-f", policy).returncode == 0
        assert gates() == ["NAME", "GATE", name, "15s"]
        patch = '{"spec":{"remedies":{"kubeletGate":{"timeout":"30s"}}}}'
        patched = own.kubectl("patch", "settlepolicy", name, "--type=merge", "-p", patch)
        assert patched.returncode == 0, patched.stderr
        assert gates() == ["NAME", "GATE", name, "30s"]
