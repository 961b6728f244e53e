"""Tests that a preview shows what the webhook would do, for any document."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.support.factories import (
    SETTINGS,
    container,
    decide_pod,
    namespace,
    pod,
    policy,
    policy_document,
    reasons,
    view,
)
from webhook.core.admission.response import warnings_for
from webhook.core.cluster.view import Namespace
from webhook.core.policy import coverage
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.document import Document
from webhook.core.preview.pod_before_and_after import to_yaml
from webhook.core.preview.pods_in_document import PassedOver, pods_of, policies_in
from webhook.core.preview.preview import Preview, preview_all, render
from webhook.core.reasons import Reason

QUICK = container("prepare", "/entrypoint")
SEEN = view(policy())


def preview(document: object, seen: Snapshot = SEEN, **options: Any) -> Preview:
    (found,) = preview_all(Document(document), seen, SETTINGS, **options)
    assert isinstance(found, Preview), found
    return found


@pytest.mark.parametrize(
    ("annotations", "fields", "expected"),
    [
        ({"openshift.io/sa.scc.mcs": "s0:c1,c0"}, {}, True),
        ({"openshift.io/sa.scc.mcs": "s0:c1,c0"}, {"securityContext": {"fsGroup": 5}}, False),
        ({"openshift.io/sa.scc.mcs": "s0:c1,c0"}, {"volumes": []}, False),
        ({}, {}, False),
    ],
)
def test_preview_says_that_an_scc_may_set_fs_group(
    annotations: dict[str, Any], fields: dict[str, Any], expected: bool
) -> None:
    look = view(
        policy(remedies={"fsGroupChangePolicy": "OnRootMismatch"}),
        namespaces=[namespace("ci", annotations=annotations)],
    )
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    found = preview(pod(**{"volumes": volumes, **fields}), look, namespace="ci")
    assert any("SCC admission may set fsGroup" in note for note in found.notes) == expected


def test_preview_leaves_the_caches_of_the_policies_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = view(policy("a"), policy("b", namespaceSelector={"matchLabels": {"team": "b"}}))
    # A cache of one entry: one that a preview adds would replace the namespace's own.
    monkeypatch.setattr(coverage, "MAX_COVERAGES", 1)
    ci = Namespace("ci", {"kubernetes.io/metadata.name": "ci"})
    before = seen.policies.coverage_for(ci, None)
    plan = before.group.plan({})
    for document in (pod(QUICK), pod(QUICK, labels={"app": "x"})):
        found = preview(document, seen, namespace_labels={"team": "b"})
        assert found.decided.decision.policies == ("a", "b")
        assert preview(document, seen, namespace="other").decided.decision.policies == ("a",)
    assert seen.policies.coverage_for(ci, None) is before
    assert before.group.plan({}) is plan


@pytest.mark.parametrize(
    ("option", "own", "chosen"),
    [
        (None, "ci", "ci"),
        (None, None, "default"),
        ("other", "ci", "other"),
        ("other", None, "other"),
    ],
)
def test_namespace_is_chosen_as_by_kubectl(
    option: str | None, own: str | None, chosen: str
) -> None:
    document = pod(QUICK)
    document["metadata"]["namespace"] = own
    assert preview(document, namespace=option).decided.namespace == chosen


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("DaemonSet", Reason.SYSTEM_POD), ("Deployment", Reason.APPLIED), ("Job", Reason.APPLIED)],
)
def test_preview_of_a_daemon_set_shows_no_kubelet_gate(kind: str, reason: Reason) -> None:
    gate = policy(remedies={"kubeletGate": {}})
    template = {"spec": pod()["spec"]}
    found = preview({"kind": kind, "metadata": {}, "spec": {"template": template}}, view(gate))
    assert [outcome.reason for outcome in found.decided.decision.outcomes] == [reason]
    assert "ownerReferences" not in found.workload.pod["metadata"] | found.after["metadata"]
    assert bool(found.diff) is (reason is Reason.APPLIED)


def test_namespace_labels_can_be_overridden() -> None:
    ci = namespace("ci", {"podsettle.dev/enabled": "false"})
    seen = view(policy(namespaceSelector={"matchLabels": {"team": "a"}}), namespaces=[ci])
    assert reasons(preview(pod(QUICK), seen).decided.decision) == ["NamespaceDisabled"]
    supposed = preview(pod(QUICK), seen, namespace_labels={"team": "a"})
    assert reasons(supposed.decided.decision) == ["prepare: Applied"]
    assert reasons(preview(pod(QUICK), seen, namespace_labels={}).decided.decision) == ["NoPolicy"]
    assert reasons(preview(pod(QUICK), seen).decided.decision) == ["NamespaceDisabled"]


@pytest.mark.parametrize(
    "odd",
    [
        {"securityContext": {"runAsUser": 10**30}},
        {"unknown": 10**30},
        {"unknown": float("nan")},
        {"unknown": b"bytes"},
    ],
    ids=["a huge number", "a huge unknown number", "no number", "bytes"],
)
def test_pod_with_odd_values_is_previewed(odd: dict[str, Any]) -> None:
    preview(pod(QUICK, **odd))


def test_yaml_output_keeps_order_and_lines_and_has_no_aliases() -> None:
    shared = {"z": 1, "a": "x\ny\n"}
    text = to_yaml({"one": shared, "two": shared, "é": "on"})
    assert text == (
        "one:\n  z: 1\n  a: |\n    x\n    y\ntwo:\n  z: 1\n  a: |\n    x\n    y\né: 'on'\n"
    )
    assert yaml.safe_load(text) == {"one": shared, "two": shared, "é": "on"}


def test_rendered_preview_is_complete_json() -> None:
    document = pod(QUICK, container("a"))
    found = preview(document)
    rendered = json.loads(render(found).model_dump_json(by_alias=True))
    assert rendered["kind"] == "Pod"
    assert (rendered["name"], rendered["namespace"], rendered["path"]) == ("p", "ci", "")
    assert rendered["policies"] == ["p"]
    assert rendered["outcomes"][0] == {
        "reason": "Applied",
        "remedy": "postInitSleep",
        "policy": "p",
        "container": "prepare",
        "changed": True,
        "warns": False,
        "message": found.decided.decision.outcomes[0].message,
        "meaning": Reason.APPLIED.meaning,
        "explanation": None,
    }
    assert rendered["outcomes"][1]["warns"] is True
    assert rendered["outcomes"][1]["message"] == Reason.NO_COMMAND.meaning
    assert rendered["warnings"] == warnings_for(found.decided.decision.outcomes)
    assert rendered["patch"] == list(found.operations)
    assert (rendered["before"], rendered["after"]) == (found.workload.pod, found.after)
    assert rendered["diff"] == found.diff


def test_pod_of_a_cluster_is_previewed_without_its_node() -> None:
    """`kubectl get pod -o yaml` prints the node, to which a new pod would not be bound."""
    live = pod(QUICK, nodeName="worker-1")
    live["metadata"]["uid"] = "8e4cd2bf"
    seen = view(policy(), namespaces=[namespace("ci")])
    found = preview(live, seen)
    assert "nodeName" not in found.workload.pod["spec"] | found.after["spec"]
    assert live["spec"]["nodeName"] == "worker-1"
    (note,) = found.notes
    assert "spec.nodeName is left out" in note
    written = preview(pod(QUICK, nodeName="worker-1"), seen)
    assert written.workload.pod["spec"]["nodeName"] == "worker-1"
    assert written.notes == ()


@pytest.mark.parametrize("invents", [True, False])
def test_unknown_namespace_is_a_note_and_does_not_change_the_decision(invents: bool) -> None:
    seen = replace(SEEN, invents_namespaces=invents)
    found = preview(pod(QUICK), seen, namespace="no-such")
    assert found.decided.decision == decide_pod(pod(QUICK), seen, namespace="no-such").decision
    assert not found.decided.namespace_known
    (note,) = found.notes
    assert note.startswith("namespace 'no-such' is not in the ")
    assert found.decided.policy_matches == () or invents
    known = replace(seen, namespaces={"no-such": Namespace("no-such", {})})
    assert preview(pod(QUICK), known, namespace="no-such").notes == ()
    labelled = preview(pod(QUICK), seen, namespace="no-such", namespace_labels={"a": "b"})
    assert labelled.decided.namespace_known


def test_rendered_preview_says_which_policies_match_and_why_others_do_not() -> None:
    seen = view(
        policy("acts", priority=1),
        policy("never"),
        policy("other", podSelector={"matchLabels": {"app": "x"}}),
    )
    rendered = json.loads(render(preview(pod(QUICK), seen)).model_dump_json(by_alias=True))
    matches = {match.pop("policy"): match for match in rendered["policyMatches"]}
    assert matches["acts"] | {"shadowed": []} == matches["acts"]
    assert (matches["acts"]["verdict"], matches["acts"]["acting"]) == ("Acts", ["postInitSleep"])
    assert matches["never"]["shadowed"] == [{"remedy": "postInitSleep", "by": "acts"}]
    assert (matches["other"]["verdict"], matches["other"]["why"][:8]) == ("NotMatched", "the pod ")
    assert rendered["summary"].startswith("prepare is kept alive for at least 500 ms")


@pytest.mark.parametrize("labels", [["a"], {"a": 5}, "text", None])
def test_malformed_labels_are_no_error_in_a_namespace_that_is_switched_off(labels: Any) -> None:
    document = pod(QUICK)
    document["metadata"]["labels"] = labels
    off = {"podsettle.dev/enabled": "false"}
    rendered = render(preview(document, namespace_labels=off))
    assert [str(each.verdict) for each in rendered.policy_matches] in ([], ["NotMatched"])


def invalid_policy(name: str) -> dict[str, Any]:
    document = policy_document(name)
    document["spec"]["remedies"] = {"postInitSlep": {}}
    return document


def test_policy_of_the_input_decides_before_any_policy_is_installed() -> None:
    seen = view()
    policies = seen.policies.replaced(policies_in(Document(policy_document("new"))).values())
    (found,) = preview_all(
        Document(pod(QUICK)), dataclasses.replace(seen, policies=policies), SETTINGS
    )
    assert isinstance(found, Preview)
    assert reasons(found.decided.decision) == [f"prepare: {Reason.APPLIED}"]
    assert found.decided.decision.policies == ("new",)


def test_first_of_two_policies_with_one_name_counts_and_invalid_ones_are_left_out() -> None:
    first, second = policy_document("p", priority=1), policy_document("p", priority=2)
    items = [invalid_policy("bad"), first, {"kind": "List", "items": [second]}]
    found = policies_in(Document({"kind": "List", "items": items}))
    assert {name: each.spec.priority for name, each in found.items()} == {"p": 1}


def test_policy_is_passed_over_as_an_object_without_a_pod() -> None:
    (found,) = pods_of(Document(policy_document("p")))
    assert isinstance(found, PassedOver)
    assert (found.shown.kind, found.shown.name, found.malformed) == ("SettlePolicy", "p", False)
    assert found.shown.message == "a policy: this preview uses it as if it were applied"


def test_invalid_policy_is_malformed_with_the_path_of_its_error() -> None:
    (found,) = pods_of(Document({"kind": "List", "items": [invalid_policy("p")]}))
    assert isinstance(found, PassedOver)
    assert found.malformed
    assert found.shown.path == "items[0].spec.remedies.postInitSlep"
    assert "did you mean postInitSleep?" in found.shown.message


def test_every_pod_of_a_list_is_previewed() -> None:
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": pod()["spec"]}}}
    items = [pod(QUICK), {"kind": "Service"}, job]
    found = list(preview_all(Document({"kind": "List", "items": items}), SEEN, SETTINGS))
    assert [(p.workload.title, len(p.operations) > 0) for p in found
            if isinstance(p, Preview)] == [("Pod/p", True), ("Job/j", False)]  # fmt: skip
    assert isinstance(found[1], PassedOver)
