"""Tests of the explanation of a pod: its record, its next pod, and what a scan finds in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.explanations import explained
from tests.support.factories import (
    IMAGE,
    Json,
    container,
    mutate_pod,
    namespace,
    node,
    pod,
    policy,
    view,
)
from webhook.cluster.rights import Right, Unread
from webhook.cluster.view_reader import NOT_INSTALLED
from webhook.core.admission.decider import OperatorSettings
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.inspect.explain.report import Explanation, as_text
from webhook.inspect.installation import WebhookCalls
from webhook.inspect.known_cluster import KnownCluster

SETTINGS = OperatorSettings(linger_image=IMAGE)
POLICIES_RIGHT = Right("list", "podsettle.dev", "settlepolicies")
TEKTON = policy("tekton", remedies={"postInitSleep": {}})


def cluster(*policies: SettlePolicy, nodes: Iterable[Json] = (), **known: Any) -> KnownCluster:
    seen = view(*policies, namespaces=[namespace("ci")], nodes=nodes)
    return KnownCluster(seen, SETTINGS, **known)


def without_policies() -> KnownCluster:
    unread = Unread("settlepolicies", POLICIES_RIGHT)
    return KnownCluster(Snapshot(invents_namespaces=False), SETTINGS, (unread,))


def admitted(document: Json, *policies: SettlePolicy) -> Json:
    """Return the pod as podsettle leaves it."""
    return mutate_pod(document, view(*policies, namespaces=[namespace("ci")]))


def explain_pod(document: Json, known: KnownCluster, *others: Json) -> Explanation:
    """Return the explanation of a pod that runs."""
    running = {"status": {"phase": "Running"}, **document}
    return explained(f"pod/{document['metadata']['name']}", known, running, *others)


APPLIED = "tekton/postInitSleep"
QUICK = pod(container("prepare", "/bin/prepare"), container("plugin"))


def test_settled_pod_is_explained_container_by_container() -> None:
    found = explain_pod(admitted(QUICK, TEKTON), cluster(TEKTON))
    assert found.verdict == "podsettle changed this pod when it was created."
    assert [(each.policy, each.remedy) for each in found.applied] == [("tekton", "postInitSleep")]
    assert [(each.container, each.remedy, each.reason) for each in found.left_out] == [
        ("plugin", "postInitSleep", "NoCommand")
    ]
    by_name = {each.name: each for each in found.containers}
    assert list(by_name) == ["podsettle-linger", "prepare", "plugin", "main"]
    assert by_name["podsettle-linger"].changes[0].startswith("podsettle added this container.")
    assert by_name["prepare"].changes[0].startswith("podsettle's wrapper runs the command")
    assert by_name["plugin"].changes == by_name["main"].changes == []
    assert found.summary.startswith("prepare is kept alive for at least 500 ms")


def test_pod_alone_tells_what_was_done_without_the_right_to_read_policies() -> None:
    with_right = explain_pod(admitted(QUICK, TEKTON), cluster(TEKTON))
    without = explain_pod(admitted(QUICK, TEKTON), without_policies())
    assert without.verdict == with_right.verdict
    assert without.summary == with_right.summary
    assert without.applied == with_right.applied
    assert without.left_out == with_right.left_out
    assert without.containers == with_right.containers
    assert without.today is None
    (unknown,) = (each for each in without.unknown if each.right)
    assert unknown.right == "list settlepolicies"
    assert unknown.command == "kubectl auth can-i list settlepolicies.podsettle.dev"
    assert unknown.command in as_text(without)


def test_namespace_whose_labels_may_not_be_read_allows_no_decision() -> None:
    right = Right("get", "", "namespaces", name="ci")
    unread = (Unread("namespaces", right),)
    unseen = KnownCluster(replace(view(TEKTON), invents_namespaces=False), SETTINGS, unread)
    found = explain_pod(QUICK, unseen)
    assert found.today is None
    assert found.verdict == (
        "podsettle did not change this pod. What podsettle would do to a new pod like this one is "
        "not known."
    )
    seen = explain_pod(QUICK, cluster(TEKTON, unread=unread))
    assert seen.today is not None


def test_decision_without_the_right_to_read_nodes_says_what_it_assumes() -> None:
    right = Right("list", "", "nodes")
    unread = (Unread("nodes", right),)
    found = explain_pod(QUICK, cluster(TEKTON, unread=unread))
    (unknown,) = (each for each in found.unknown if each.what == "nodes")
    assert unknown.why.startswith(
        "it needs the right to list nodes; today's decision treats remedies with "
        "`when: NodesNeedIt` as needed; symptoms that may be missing: cri-o-9840"
    )


def test_cluster_without_podsettle_names_no_missing_right() -> None:
    unread = Unread("settlepolicies", POLICIES_RIGHT, NOT_INSTALLED)
    found = explain_pod(QUICK, KnownCluster(Snapshot(), SETTINGS, (unread,)))
    (unknown,) = (each for each in found.unknown if each.what == "settlepolicies")
    assert (unknown.why, unknown.right, unknown.command) == (NOT_INSTALLED, "", "")


def test_decision_of_today_leaves_out_the_node_of_the_pod() -> None:
    nodes = [node("fixed", "containerd://2.1.5"), node("affected")]
    running = {**QUICK, "metadata": {**QUICK["metadata"], "uid": "u"}}
    running["spec"] = {**QUICK["spec"], "nodeName": "fixed"}
    found = explain_pod(running, cluster(TEKTON, nodes=nodes))
    assert found.today is not None
    assert found.today.outcomes[0].reason is Reason.APPLIED
    assert found.node == (
        "The pod's node fixed (containerd 2.1.5) is not affected: CRI-O reports exit code 255 for "
        "containers that end within milliseconds (cri-o-9840)."
    )
    (need,) = found.nodes
    assert (need.policy, need.remedy, need.status) == ("tekton", "postInitSleep", "True")
    assert "affected (cri-o 1.33.12)" in need.message


def test_node_is_only_possibly_affected_by_a_defect_that_needs_a_configuration() -> None:
    gate = policy("gate", remedies={"kubeletGate": {}})
    running = {**QUICK, "spec": {**QUICK["spec"], "nodeName": "n"}}
    found = explain_pod(running, cluster(gate, nodes=[node("n", "containerd://2.1.5")]))
    assert found.node.startswith(
        "The pod's node n (kubelet 1.33.12) is possibly affected, because the defect also needs "
        "`serverTLSBootstrap` in the kubelet's configuration: "
    )


def test_nulls_of_a_pod_are_absent_fields() -> None:
    state = {"terminated": {"exitCode": 1, "reason": None, "startedAt": None}}
    status = {"phase": None, "initContainerStatuses": [{"name": "prepare", "state": state}]}
    for each in (status, None):
        assert explain_pod({**QUICK, "status": each}, cluster(TEKTON)).kind == "Pod"


GATE = policy("gate", remedies={"kubeletGate": {}})
OTHER = policy("other", remedies={"fsGroupChangePolicy": "OnRootMismatch"})
INSTEAD = policy("other", remedies={"postInitSleep": {}})


@pytest.mark.parametrize(
    ("known", "today", "more"),
    [
        (cluster(TEKTON), "", ""),
        (cluster(TEKTON, GATE), "", " A policy asks for more than the pod has."),
        (cluster(INSTEAD), "Policy other sets this remedy instead.", ""),
        (cluster(OTHER), "No policy that covers the pod sets this remedy.", ""),
        (cluster(), f"NoPolicy: {Reason.NO_POLICY.meaning}", ""),
        (
            cluster(TEKTON, nodes=[node("fixed", "cri-o://1.36.0")]),
            f"NotNeeded: {Reason.NOT_NEEDED.meaning}",
            "",
        ),
        (
            cluster(TEKTON, calls=WebhookCalls()),
            "The API server does not call podsettle: no MutatingWebhookConfiguration is "
            "podsettle's.",
            "",
        ),
    ],
    ids=["same", "more", "instead", "other remedy", "no policy", "upgraded", "not called"],
)
def test_remedy_of_a_settled_pod_that_would_not_be_applied_today_says_why(
    known: KnownCluster, today: str, more: str
) -> None:
    found = explain_pod(admitted(QUICK, TEKTON), known)
    assert found.verdict == f"podsettle changed this pod when it was created.{more}"
    assert found.applied[0].today == today


COPY = "This pod has podsettle's changes, but not its annotations (it may be a copy)."


@pytest.mark.parametrize("admitted_again", [False, True])
def test_copy_without_annotations_is_said_to_be_one(admitted_again: bool) -> None:
    copied = admitted(QUICK, TEKTON)
    del copied["metadata"]["annotations"]
    if admitted_again:
        copied = admitted(copied, TEKTON)
        assert "podsettle.dev/skipped" in copied["metadata"]["annotations"]
    for known in (cluster(TEKTON), cluster(), without_policies()):
        assert explain_pod(copied, known).verdict == COPY
    gate = policy("gate", remedies={"kubeletGate": {}})
    more = explain_pod(copied, cluster(TEKTON, gate)).verdict
    assert more == f"{COPY} A policy asks for more than the pod has."


def test_one_container_that_is_both_gates_is_a_sign_of_both() -> None:
    remedies = {"kubeletGate": {}, "startGate": {"waitFor": [{"dns": "a.b"}]}}
    gates = policy("gates", remedies=remedies)
    found = explain_pod(admitted(QUICK, gates), cluster(gates))
    assert found.verdict == "podsettle changed this pod when it was created."
    assert found.notes == []
    (change,) = found.containers[0].changes
    assert "kubelet" in change
    assert "the addresses and names in its arguments" in change


def test_pod_that_was_not_changed_is_compared_with_the_age_of_the_policy() -> None:
    """Of a pod that lives, the symptom that a scan finds says the same."""
    times = {"tekton": datetime(2026, 11, 20, 10, tzinfo=UTC)}
    for phase, created, clause in (
        ("Succeeded", "2026-11-20T09:59:59Z", "the pod is older than policy tekton"),
        ("Running", "2026-11-20T10:00:01Z", "missed: the pod is younger than policy tekton"),
    ):
        metadata = {**QUICK["metadata"], "creationTimestamp": created}
        late = {**QUICK, "metadata": metadata, "status": {"phase": phase}}
        found = explain_pod(late, cluster(TEKTON, created=times))
        assert found.verdict == (
            "podsettle did not change this pod. It would change a new pod like this one."
        )
        sentences = [each for symptom in found.symptoms for each in symptom.sentences]
        assert bool(sentences) == (phase == "Running")
        (told,) = sentences or found.notes
        assert told.lower().startswith(clause)


def test_annotations_that_were_copied_from_another_pod_are_noticed() -> None:
    settled = admitted(QUICK, TEKTON)
    copied = pod(containers=[container("main", "/bin/main")])
    copied["metadata"]["annotations"] = settled["metadata"]["annotations"]
    found = explain_pod(copied, without_policies())
    assert "They may be those of another pod." in found.verdict
    assert [each for each in found.notes if "copied from another pod" in each] == found.notes != []
    # A label that was added later is no contradiction.
    settled["metadata"]["labels"] = {"added": "later"}
    assert explain_pod(settled, without_policies()).notes == []


EXCLUDES = "The pod's annotation podsettle.dev/skip excludes"
MISSPELT = (
    "UnknownRemedy: podsettle.dev/skip names 'postInitSlep'; use true, or names of remedies: "
    f"{', '.join(REMEDIES)}."
)


def test_annotation_that_excludes_remedies_is_named_with_what_it_excludes() -> None:
    cases: list[tuple[str, list[str]]] = [
        (" true ", [f"{EXCLUDES} every remedy."]),
        ("postInitSleep, runtimeClass", [f"{EXCLUDES} runtimeClass, postInitSleep."]),
        ("postInitSlep", [MISSPELT]),
        ("postInitSlep,kubeletGate", [f"{EXCLUDES} kubeletGate.", MISSPELT]),
        ("false", []),
        ("", []),
    ]
    for text, notes in cases:
        document = pod(container("prepare"), annotations={"podsettle.dev/skip": text})
        assert (text, explain_pod(document, without_policies()).notes) == (text, notes)


def test_reason_of_another_version_is_shown_without_a_sentence_of_this_one() -> None:
    notes = {"podsettle.dev/skipped": "plugin/postInitSleep=Unheard"}
    found = explain_pod(pod(containers=[container("main")], annotations=notes), cluster(TEKTON))
    (left_out,) = found.left_out
    assert left_out.reason == "Unheard"
    assert found.verdict == ("podsettle did not change this pod, although a policy asked for it.")


def test_fields_that_a_remedy_sets_are_shown_with_their_values() -> None:
    remedies = {"fsGroupChangePolicy": "OnRootMismatch"}
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    document = pod(securityContext={"fsGroup": 5}, volumes=[claim])
    slow = policy("slow", remedies=remedies)
    found = explain_pod(admitted(document, slow), cluster(slow))
    assert found.applied[0].fields == ["spec.securityContext.fsGroupChangePolicy: OnRootMismatch"]


def test_annotations_without_a_sign_in_the_pod_are_only_quoted() -> None:
    forged = pod(container("a", "/bin/a"), annotations={"podsettle.dev/applied": APPLIED})
    for known in (cluster(TEKTON), without_policies()):
        assert explain_pod(forged, known).verdict == (
            "The annotations say that podsettle changed this pod when it was created, but the pod "
            "shows no sign of postInitSleep. They may be those of another pod."
        )
    newer = pod(annotations={"podsettle.dev/applied": "p/unheardOf"})
    assert explain_pod(newer, without_policies()).verdict.startswith("The annotations say")


def test_pod_that_would_only_be_annotated_is_not_promised_a_change() -> None:
    plugin = pod(container("plugin"))
    found = explain_pod(plugin, cluster(TEKTON))
    assert found.today is not None
    assert found.today.patch
    assert "would not change a new pod" in found.verdict
    assert found.advice == []


def test_policies_that_only_report_are_named_as_the_cause() -> None:
    settings: dict[str, Any] = {"a": {"postInitSleep": {}}, "b": {"kubeletGate": {}}}
    audited = [policy(name, action="Audit", remedies=each) for name, each in settings.items()]
    assert explain_pod(QUICK, cluster(*audited)).verdict == (
        "podsettle did not change this pod. It would not change a new pod like this one, because "
        "only `action: Audit` covers it: a, b."
    )


ANNOTATION_TEXTS = st.text("ab/=,\x1b\n+é", max_size=40) | st.sampled_from(
    ["a" * 200_000, "a/" * 100_000, "a=b," * 100_000, "p/postInitSleep", "c/r=NoCommand"]
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["podsettle.dev/applied", "podsettle.dev/settled", "podsettle.dev/summary",
             "podsettle.dev/skipped", "podsettle.dev/skip"]
        ),
        ANNOTATION_TEXTS,
    )
)  # fmt: skip
def test_any_annotation_is_explained_in_bounded_printable_text(annotations: dict[str, str]) -> None:
    document = pod(container("a", "/bin/a"), annotations=annotations)
    found = explain_pod(document, cluster(TEKTON))
    assert Explanation.model_validate_json(found.model_dump_json(by_alias=True)) == found
    text = as_text(found)
    assert len(text) < 120_000
    assert all(line.isprintable() for line in text.split("\n"))


def test_long_texts_of_tenants_are_cut_in_text_and_whole_in_json() -> None:
    long = "x" * 200_000
    texts = {
        "podsettle.dev/applied": f"p/skipSELinuxRelabel,{'q' * 3_000}/postInitSleep",
        "podsettle.dev/summary": "y" * 3_000,
        "podsettle.dev/skipped": f"{'c' * 1_500}/postInitSleep=NoCommand",
        "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel": long,
        "try-skip-volume-selinux-label.crio.io": long,
    }
    document = pod(container(f"name-{long}", "/x"), annotations=texts)
    found = explain_pod(document, cluster(policy(remedies={"skipSELinuxRelabel": {}})))
    lines = as_text(found).splitlines()
    assert max(map(len, lines)) < 1_000
    assert sum(line.count("annotation ") for line in lines if " sets " in line) == 2
    as_json = found.model_dump_json(by_alias=True)
    assert as_json.count(long) >= 3
    assert texts["podsettle.dev/summary"] in as_json


def test_policies_that_do_not_cover_the_pod_are_shown_beside_one_that_only_audits() -> None:
    elsewhere = policy("elsewhere", podSelector={"matchLabels": {"app": "x"}})
    line = "policy elsewhere does not cover the pod: the pod has no label app=x"
    audited = explain_pod(QUICK, cluster(policy("trial", action="Audit"), elsewhere))
    assert line in as_text(audited)
    changed = explain_pod(QUICK, cluster(TEKTON, elsewhere))
    assert line not in as_text(changed)


def test_pod_with_a_symptom_gets_the_policy_that_a_scan_would_propose() -> None:
    failed = pod(container("prepare", "/bin/prepare"))
    failed["spec"] |= {"nodeName": "crio", "restartPolicy": "Never"}
    second = "2026-11-20T10:15:03Z"
    ended = {"exitCode": 255, "startedAt": second, "finishedAt": second}
    failed["status"] = {
        "phase": "Failed",
        "initContainerStatuses": [{"name": "prepare", "state": {"terminated": ended}}],
    }
    nodes = [node("crio", "cri-o://1.33.12")]
    found = explain_pod(failed, cluster(nodes=nodes))
    (symptom,) = found.symptoms
    assert symptom.symptom == "cri-o-9840"
    assert "# The policy changes 1 of the 1 pod found." in symptom.policy
    assert "initContainers: [prepare]" in as_text(found)
    covered = explain_pod(failed, cluster(TEKTON, nodes=nodes)).symptoms[0]
    assert covered.policy == ""
    assert "Policy tekton settles new pods like these already (1 pod)." in covered.advice
    failed["spec"]["initContainers"][0]["command"].insert(0, "/podsettle/linger")
    kept_alive = explain_pod(failed, cluster(nodes=nodes)).symptoms[0]
    assert (kept_alive.certainty, kept_alive.policy) == ("possible", "")
    assert "although postInitSleep keeps it alive" in kept_alive.sentences[0]
    assert "raise `minLifetime` in the policy" in kept_alive.advice
