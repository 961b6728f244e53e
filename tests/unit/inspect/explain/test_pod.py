"""Tests of the explanation of a pod: its record, its containers, and the decision of today."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import planted_symptoms
from tests.support.factories import (
    IMAGE,
    LINGER,
    Json,
    container,
    mutate_pod,
    namespace,
    node,
    pod,
    policy,
    runtime_class,
    view,
)
from tests.support.planted_symptoms import LOOK_ALIKES, PLANTS, Plant, PlantedEvent
from webhook.cluster.rights import Right
from webhook.cluster.unread import Unread
from webhook.cluster.view_reader import NOT_INSTALLED
from webhook.core.admission.decider import OperatorSettings
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.inspect.explain.model import PodExplanation
from webhook.inspect.explain.pod import explain_pod
from webhook.inspect.explain.text import as_text
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.objects import Event
from webhook.inspect.webhook_calls import WebhookCalls

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


APPLIED = "tekton/postInitSleep"
QUICK = pod(container("prepare", "/bin/prepare"), container("plugin"))


def test_settled_pod_is_explained_container_by_container() -> None:
    explained = explain_pod(admitted(QUICK, TEKTON), cluster(TEKTON), "ci")
    assert explained.verdict == "podsettle changed this pod when it was created."
    assert [(each.policy, each.remedy) for each in explained.applied] == [
        ("tekton", "postInitSleep")
    ]
    assert [(each.container, each.remedy, each.reason) for each in explained.left_out] == [
        ("plugin", "postInitSleep", "NoCommand")
    ]
    by_name = {each.name: each for each in explained.containers}
    assert list(by_name) == ["podsettle-linger", "prepare", "plugin", "main"]
    assert by_name["podsettle-linger"].changes[0].startswith("podsettle added this container.")
    assert by_name["prepare"].changes[0].startswith("podsettle's wrapper runs the command")
    assert by_name["plugin"].changes == []
    assert [each.reason for each in by_name["plugin"].left_out] == ["NoCommand"]
    assert by_name["main"].changes == []
    assert by_name["main"].left_out == []
    assert explained.summary.startswith("prepare is kept alive for at least 500 ms")


def test_pod_alone_tells_what_was_done_without_the_right_to_read_policies() -> None:
    with_right = explain_pod(admitted(QUICK, TEKTON), cluster(TEKTON), "ci")
    without = explain_pod(admitted(QUICK, TEKTON), without_policies(), "ci")
    assert without.verdict == with_right.verdict
    assert without.summary == with_right.summary
    assert without.applied == with_right.applied
    assert without.left_out == with_right.left_out
    assert without.containers == with_right.containers
    assert without.today is None
    (unknown,) = without.unknown
    assert unknown.right == "list settlepolicies"
    assert unknown.command == "kubectl auth can-i list settlepolicies.podsettle.dev"
    assert unknown.command in as_text(without)


def test_namespace_whose_labels_may_not_be_read_allows_no_decision() -> None:
    right = Right("get", "", "namespaces", name="ci")
    unread = (Unread("namespaces", right),)
    unseen = KnownCluster(replace(view(TEKTON), invents_namespaces=False), SETTINGS, unread)
    explained = explain_pod(QUICK, unseen, "ci")
    assert explained.today is None
    assert explained.verdict == "This pod carries no sign of podsettle."
    seen = explain_pod(QUICK, cluster(TEKTON, unread=unread), "ci")
    assert seen.today is not None


def test_decision_without_the_right_to_read_nodes_says_what_it_assumes() -> None:
    right = Right("list", "", "nodes")
    unread = (Unread("nodes", right),)
    explained = explain_pod(QUICK, cluster(TEKTON, unread=unread), "ci")
    (unknown,) = explained.unknown
    assert unknown.why == (
        "it needs the right to list nodes; today's decision treats remedies with "
        "`when: NodesNeedIt` as needed"
    )


def test_cluster_without_podsettle_names_no_missing_right() -> None:
    unread = Unread("settlepolicies", POLICIES_RIGHT, NOT_INSTALLED)
    explained = explain_pod(QUICK, KnownCluster(Snapshot(), SETTINGS, (unread,)), "ci")
    (unknown,) = explained.unknown
    assert (unknown.why, unknown.right, unknown.command) == (NOT_INSTALLED, "", "")
    assert explained.verdict == "This pod carries no sign of podsettle."


def test_decision_of_today_leaves_out_the_node_of_the_pod() -> None:
    nodes = [node("fixed", "containerd://2.1.5"), node("affected")]
    running = {**QUICK, "metadata": {**QUICK["metadata"], "uid": "u"}}
    running["spec"] = {**QUICK["spec"], "nodeName": "fixed"}
    explained = explain_pod(running, cluster(TEKTON, nodes=nodes), "ci")
    assert explained.today is not None
    assert explained.today.outcomes[0].reason is Reason.APPLIED
    assert explained.node == (
        "The pod's node fixed (containerd 2.1.5) is not affected: CRI-O reports exit code 255 for "
        "containers that end within milliseconds (cri-o-9840)."
    )
    (need,) = explained.nodes
    assert (need.policy, need.remedy, need.still_needed) == ("tekton", "postInitSleep", "True")
    assert "affected (cri-o 1.33.12)" in need.sentence


def test_remedy_of_a_policy_that_is_gone_is_said_not_to_be_applied_today() -> None:
    other = policy("other", remedies={"fsGroupChangePolicy": "OnRootMismatch"})
    explained = explain_pod(admitted(QUICK, TEKTON), cluster(other), "ci")
    (applied,) = explained.applied
    assert applied.today == "No policy that covers the pod sets this remedy."
    none = explain_pod(admitted(QUICK, TEKTON), cluster(), "ci")
    assert none.applied[0].today == f"NoPolicy: {Reason.NO_POLICY.meaning}"
    same = explain_pod(admitted(QUICK, TEKTON), cluster(TEKTON), "ci")
    assert same.applied[0].today == ""


def test_remedy_of_a_settled_pod_that_no_node_needs_is_said_not_to_be_applied_today() -> None:
    upgraded = cluster(TEKTON, nodes=[node("fixed", "cri-o://1.36.0")])
    explained = explain_pod(admitted(QUICK, TEKTON), upgraded, "ci")
    assert explained.applied[0].today == f"NotNeeded: {Reason.NOT_NEEDED.meaning}"
    assert explained.verdict == "podsettle changed this pod when it was created."


def test_class_that_podsettle_set_is_no_preset_of_the_author() -> None:
    classes = [runtime_class("fast"), runtime_class("slow")]
    fast, slow = (policy(remedies={"runtimeClass": {"name": name}}) for name in ("fast", "slow"))
    settled = mutate_pod(QUICK, view(fast, namespaces=[namespace("ci")], classes=classes))
    now = KnownCluster(view(slow, namespaces=[namespace("ci")], classes=classes), SETTINGS)
    explained = explain_pod(settled, now, "ci")
    assert explained.applied[0].fields == ["spec.runtimeClassName: fast"]
    assert explained.applied[0].today == ""
    assert explained.today is not None
    assert [each.reason for each in explained.today.outcomes] == [Reason.APPLIED]


def test_decision_of_today_is_on_the_whole_pod_that_its_author_wrote() -> None:
    env = [{"name": "KEY", "value": "value"}]
    written = pod(container("prepare", "/prepare", env=env), annotations={"other": "x"})
    today = explain_pod(admitted(written, TEKTON), cluster(TEKTON), "ci").today
    assert today is not None
    assert today.before == written
    assert today == explain_pod(written, cluster(TEKTON), "ci").today


COPY = (
    "This pod has podsettle's changes, but not its annotations that name them (it may be a copy)."
)


def test_wrapper_that_the_author_wrote_is_part_of_a_new_pod() -> None:
    wrapped = pod(container("prepare", *LINGER, "/prepare"))
    explained = explain_pod(wrapped, cluster(TEKTON), "ci")
    assert explained.verdict == COPY
    assert explained.today is not None
    assert [each.reason for each in explained.today.outcomes] == [Reason.ALREADY_SETTLED]


@pytest.mark.parametrize("admitted_again", [False, True])
def test_copy_without_annotations_is_said_to_be_one(admitted_again: bool) -> None:
    copied = admitted(QUICK, TEKTON)
    del copied["metadata"]["annotations"]
    if admitted_again:
        copied = admitted(copied, TEKTON)
        assert "podsettle.dev/skipped" in copied["metadata"]["annotations"]
    for known in (cluster(TEKTON), cluster(), without_policies()):
        assert explain_pod(copied, known, "ci").verdict == COPY
    gate = policy("gate", remedies={"kubeletGate": {}})
    more = explain_pod(copied, cluster(TEKTON, gate), "ci").verdict
    assert more == f"{COPY} A policy asks for more than the pod has."


def test_one_container_that_is_both_gates_is_a_sign_of_both() -> None:
    remedies = {"kubeletGate": {}, "startGate": {"waitFor": [{"dns": "a.b"}]}}
    gates = policy("gates", remedies=remedies)
    explained = explain_pod(admitted(QUICK, gates), cluster(gates), "ci")
    assert explained.verdict == "podsettle changed this pod when it was created."
    assert explained.notes == []
    (change,) = explained.containers[0].changes
    assert "kubelet" in change
    assert "the addresses and names in its arguments" in change


def test_reason_of_two_remedies_is_printed_once() -> None:
    remedies = {"postInitSleep": {}, "openFiles": {"soft": 1024, "initContainers": ["plugin"]}}
    both = policy("both", remedies=remedies)
    settled = admitted(pod(container("plugin"), containers=[container("main", "/x")]), both)
    explained = explain_pod(settled, without_policies(), "ci")
    assert "plugin was left as it is: NoCommand." in explained.summary
    lines = as_text(explained).splitlines()
    (left_out,) = [line for line in lines if Reason.NO_COMMAND.meaning in line]
    assert left_out.startswith("  postInitSleep, openFiles plugin: NoCommand: ")
    assert (
        "  plugin (init container): Left as it was: NoCommand (postInitSleep, openFiles)." in lines
    )


@pytest.mark.parametrize(
    ("created", "note"),
    [
        ("2026-11-20T09:59:59Z", "The pod is older than policy tekton."),
        ("2026-11-20T10:00:00Z", "The pod was created in the same second as policy tekton."),
        ("2026-11-20T10:00:01Z", "The pod is younger than policy tekton. Either podsettle did"),
    ],
)
def test_pod_that_was_not_changed_is_compared_with_the_age_of_the_policy(
    created: str, note: str
) -> None:
    late = {**QUICK, "metadata": {**QUICK["metadata"], "creationTimestamp": created}}
    times = {"tekton": datetime(2026, 11, 20, 10, tzinfo=UTC)}
    explained = explain_pod(late, cluster(TEKTON, created=times), "ci")
    assert "would change a new pod" in explained.verdict
    assert " ".join(explained.notes).startswith(note)


def test_annotations_that_were_copied_from_another_pod_are_noticed() -> None:
    settled = admitted(QUICK, TEKTON)
    copied = pod(containers=[container("main", "/bin/main")])
    copied["metadata"]["annotations"] = settled["metadata"]["annotations"]
    explained = explain_pod(copied, without_policies(), "ci")
    assert len(explained.notes) == 2
    assert all("copied from another pod" in each for each in explained.notes)
    assert explain_pod(settled, without_policies(), "ci").notes == []


def test_new_label_on_a_settled_pod_is_no_contradiction() -> None:
    settled = admitted(QUICK, TEKTON)
    settled["metadata"]["labels"] = {"added": "later"}
    assert explain_pod(settled, without_policies(), "ci").notes == []


EXCLUDES = "The pod's annotation podsettle.dev/skip excludes"
MISSPELT = (
    "UnknownRemedy: podsettle.dev/skip names 'postInitSlep'; use true, or names of remedies: "
    f"{', '.join(REMEDIES)}."
)


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        (" true ", [f"{EXCLUDES} every remedy."]),
        ("postInitSleep, runtimeClass", [f"{EXCLUDES} runtimeClass, postInitSleep."]),
        ("postInitSlep", [MISSPELT]),
        ("postInitSlep,kubeletGate", [f"{EXCLUDES} kubeletGate.", MISSPELT]),
        ("false", []),
        ("", []),
    ],
)
def test_annotation_that_excludes_remedies_is_named_with_what_it_excludes(
    text: str, notes: list[str]
) -> None:
    document = pod(container("prepare"), annotations={"podsettle.dev/skip": text})
    assert explain_pod(document, without_policies(), "ci").notes == notes


def test_reason_of_another_version_is_shown_without_a_sentence_of_this_one() -> None:
    notes = {"podsettle.dev/skipped": "plugin/postInitSleep=Unheard"}
    explained = explain_pod({**QUICK, "metadata": {"annotations": notes}}, cluster(TEKTON), "ci")
    (left_out,) = explained.left_out
    assert left_out.reason == "Unheard"
    assert explained.verdict == (
        "podsettle did not change this pod, although a policy asked for it."
    )


def test_fields_that_a_remedy_sets_are_shown_with_their_values() -> None:
    remedies = {"fsGroupChangePolicy": "OnRootMismatch"}
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    document = pod(securityContext={"fsGroup": 5}, volumes=[claim])
    slow = policy("slow", remedies=remedies)
    explained = explain_pod(admitted(document, slow), cluster(slow), "ci")
    assert explained.applied[0].fields == [
        "spec.securityContext.fsGroupChangePolicy: OnRootMismatch"
    ]


def test_annotations_without_a_sign_in_the_pod_are_only_quoted() -> None:
    forged = pod(container("a", "/bin/a"), annotations={"podsettle.dev/applied": APPLIED})
    for known in (cluster(TEKTON), without_policies()):
        assert explain_pod(forged, known, "ci").verdict == (
            "The annotations say that podsettle changed this pod when it was created, but the pod "
            "shows no sign of postInitSleep."
        )
    newer = pod(annotations={"podsettle.dev/applied": "p/unheardOf"})
    assert explain_pod(newer, without_policies(), "ci").verdict.startswith("The annotations say")


def test_pod_that_a_later_policy_covers_too_is_said_to_lack_remedies() -> None:
    gate = policy("gate", remedies={"kubeletGate": {}})
    explained = explain_pod(admitted(QUICK, TEKTON), cluster(TEKTON, gate), "ci")
    assert explained.verdict == (
        "podsettle changed this pod when it was created. A policy asks for more than the pod has."
    )
    assert explained.applied[0].today == ""


def test_remedy_that_another_policy_sets_today_names_that_policy() -> None:
    other = policy("other", remedies={"postInitSleep": {}})
    explained = explain_pod(admitted(QUICK, TEKTON), cluster(other), "ci")
    assert explained.applied[0].today == "Policy other sets this remedy instead."


@pytest.mark.parametrize(
    ("calls", "called", "verdict"),
    [
        (WebhookCalls(), "False", "podsettle did not change this pod. A policy covers it, but the "
         "API server does not call podsettle for a new pod like this one."),
        (WebhookCalls(readable=False), "Unknown", "podsettle did not change this pod. It would "
         "change a new pod like this one if the API server calls podsettle for it."),
    ],
)  # fmt: skip
def test_explanation_promises_only_what_the_webhook_configuration_allows(
    calls: WebhookCalls, called: str, verdict: str
) -> None:
    explained = explain_pod(QUICK, cluster(TEKTON, calls=calls), "ci")
    assert (explained.called, explained.verdict) == (called, verdict)
    assert bool(explained.advice) == (called != "False")
    why = "no MutatingWebhookConfiguration is podsettle's"
    assert any(why in note for note in explained.notes) == (called == "False")
    rights = [each.right for each in explained.unknown]
    assert rights == ([] if called == "False" else ["list mutatingwebhookconfigurations"])


def test_remedy_of_a_settled_pod_would_not_be_applied_if_podsettle_is_not_called() -> None:
    known = cluster(TEKTON, calls=WebhookCalls())
    explained = explain_pod(admitted(QUICK, TEKTON), known, "ci")
    assert explained.verdict == "podsettle changed this pod when it was created."
    assert explained.applied[0].today == (
        "The API server does not call podsettle: no MutatingWebhookConfiguration is podsettle's."
    )


def test_pod_that_would_only_be_annotated_is_not_promised_a_change() -> None:
    plugin = pod(container("plugin"))
    explained = explain_pod(plugin, cluster(TEKTON), "ci")
    assert explained.today is not None
    assert explained.today.patch
    assert "would not change a new pod" in explained.verdict
    assert explained.advice == []


@pytest.mark.parametrize(
    ("names", "clause"),
    [(["a"], "policy a only reports"), (["a", "b"], "policies a, b only report")],
)
def test_policies_that_only_report_are_named_as_the_cause(names: list[str], clause: str) -> None:
    settings: dict[str, Any] = {"a": {"postInitSleep": {}}, "b": {"kubeletGate": {}}}
    audited = [policy(name, action="Audit", remedies=settings[name]) for name in names]
    explained = explain_pod(QUICK, cluster(*audited), "ci")
    assert explained.verdict == (
        "podsettle did not change this pod, and would not change a new pod like this one, because "
        f"{clause} (`action: Audit`)."
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
    explained = explain_pod(document, cluster(TEKTON), "ci")
    assert PodExplanation.model_validate_json(explained.model_dump_json(by_alias=True)) == explained
    text = as_text(explained)
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
    document["metadata"]["name"] = long
    explained = explain_pod(document, cluster(policy(remedies={"skipSELinuxRelabel": {}})), "ci")
    lines = as_text(explained).splitlines()
    assert max(map(len, lines)) < 1_000
    assert sum(line.count("annotation ") for line in lines if " sets " in line) == 2
    as_json = explained.model_dump_json(by_alias=True)
    assert as_json.count(long) >= 4
    assert texts["podsettle.dev/summary"] in as_json


def test_decision_that_fails_is_not_known_and_no_policy_is_said_not_to_cover_the_pod() -> None:
    broken = replace(cluster(TEKTON), settings=OperatorSettings(None, IMAGE, "https://e/\x1b[31m"))
    explained = explain_pod(QUICK, broken, "ci")
    assert "What podsettle would do to a new pod like this one is not known: InternalError: " in (
        explained.verdict
    )
    assert "does not cover the pod" not in as_text(explained)


def test_policies_that_do_not_cover_the_pod_are_shown_beside_one_that_only_audits() -> None:
    elsewhere = policy("elsewhere", podSelector={"matchLabels": {"app": "x"}})
    line = "policy elsewhere does not cover the pod: the pod has no label app=x"
    audited = explain_pod(QUICK, cluster(policy("trial", action="Audit"), elsewhere), "ci")
    assert line in as_text(audited)
    changed = explain_pod(QUICK, cluster(TEKTON, elsewhere), "ci")
    assert line not in as_text(changed)


NOT_JUDGED = ("kubelet-certificate", "missing-handler", "not-settled")
"""The symptoms of certificate requests, of no defect, and of policies."""
NOW = datetime(2026, 11, 22, 10, tzinfo=UTC)


def explained_plant(plant: Plant, events: Iterable[Json]) -> list[tuple[str, str]]:
    """The symptoms that explain names for a planted pod, with their certainty."""
    document = plant.pod("ci")
    document["metadata"] |= {"uid": plant.name, "creationTimestamp": planted_symptoms.stamp(NOW)}
    document["status"] = plant.with_state(NOW)
    nodes = [planted_symptoms.node(*each) for each in planted_symptoms.NODE_RUNTIMES.items()]
    decoded = [msgspec.convert(each, Event, strict=False) for each in events]
    explained = explain_pod(document, cluster(nodes=nodes), "ci", pod_events=decoded)
    return [(each.symptom, each.certainty) for each in explained.symptoms]


@pytest.mark.parametrize(
    "plant",
    [each for each in (*PLANTS, *LOOK_ALIKES) if each.symptom not in NOT_JUDGED],
    ids=lambda plant: plant.name,
)
def test_pod_with_its_events_shows_the_symptom_that_a_scan_finds(plant: Plant) -> None:
    events = [plant.event(n, "ci", plant.name, NOW) for n in range(len(plant.events))]
    expected = [(plant.symptom, str(plant.certainty))] if plant.certainty else []
    assert explained_plant(plant, events) == expected


def test_event_about_an_early_pull_ends_the_symptom_of_a_gap_but_not_that_of_another_pod() -> None:
    (plant,) = (each for each in PLANTS if each.name == "umount-unknown")
    early = PlantedEvent("Pulling", 'Pulling image "app"', "spec.containers{main}", 3, 3)
    event = replace(plant, events=(early,)).event(0, "ci", plant.name, NOW)
    assert explained_plant(plant, []) == [("slow-umount", "possible")]
    assert explained_plant(plant, [event]) == []
    event["involvedObject"]["name"] = "another"
    assert explained_plant(plant, [event]) == [("slow-umount", "possible")]


def test_pod_with_a_symptom_gets_the_policy_that_a_scan_would_propose() -> None:
    failed = pod(container("prepare", "/bin/prepare"))
    failed["spec"] |= {"nodeName": "crio", "restartPolicy": "Never"}
    second = "2026-11-20T10:15:03Z"
    ended = {"exitCode": 255, "startedAt": second, "finishedAt": second}
    failed["status"] = {
        "initContainerStatuses": [{"name": "prepare", "state": {"terminated": ended}}]
    }
    nodes = [node("crio", "cri-o://1.33.12")]
    explained = explain_pod(failed, cluster(nodes=nodes), "ci")
    (symptom,) = explained.symptoms
    assert symptom.symptom == "exit-255"
    assert "# The policy changes 1 of the 1 pod found." in symptom.policy
    assert "initContainers: [prepare]" in as_text(explained)
    covered = explain_pod(failed, cluster(TEKTON, nodes=nodes), "ci").symptoms[0]
    assert covered.policy == ""
    assert "Policy tekton has a remedy for 1 pod like these." in covered.advice
    failed["spec"]["initContainers"][0]["command"].insert(0, "/podsettle/linger")
    kept_alive = explain_pod(failed, cluster(nodes=nodes), "ci").symptoms[0]
    assert (kept_alive.certainty, kept_alive.policy) == ("possible", "")
    assert "although postInitSleep keeps it alive" in kept_alive.sentences[0]
    assert "raise `minLifetime` in the policy" in kept_alive.advice
