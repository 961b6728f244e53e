"""Tests of a scan of a dump: its report, and the report's three formats."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import html
import json
import re
import shlex
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import partial
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.support.planted_symptoms import PLANTS, dump, owned_by
from webhook.cluster.manifests import Manifests, read_manifests
from webhook.cluster.rights import Right, Unread
from webhook.core.admission.decider import OperatorSettings
from webhook.core.defects.versions import Version
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy, parse_policy
from webhook.core.preview.document import Document
from webhook.core.preview.preview import Preview, preview_all
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.explain.target import ObjectTarget, parse_target
from webhook.inspect.findings import Answer, Finding, Looked, format_time
from webhook.inspect.installation import WebhookCalls
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.object_readers import DumpReader
from webhook.inspect.scan import collect
from webhook.inspect.scan.collect import scan
from webhook.inspect.scan.html import render_html
from webhook.inspect.scan.model import PolicyPreview, ScanReport, SymptomReport
from webhook.inspect.scan.summary import symptom_line
from webhook.inspect.scan.text import render_names, render_text
from webhook.inspect.scan.unsettled import age_clause

NOW = datetime(2026, 11, 22, 10, tzinfo=UTC)
Json = dict[str, Any]


def to_json(report: ScanReport) -> str:
    return msgspec.json.encode(report).decode()


WITH_POLICY = {
    "cri-o-9840",
    "containerd-slow-umount",
    "kubelet-serving-certificate",
    "fsgroup-ownership-walk",
}


class Dump:
    """The planted dump, which a test changes before it is scanned.

    Kinds that it does not contain count as not looked at.
    """

    def __init__(self, namespace: str = "ci", without: str = "") -> None:
        items = json.loads(json.dumps(dump(namespace, NOW)))["items"]
        self.items = [each for each in items if each["kind"] != without]

    def of(self, kind: str) -> list[Json]:
        return [each for each in self.items if each["kind"] == kind]

    def pod(self, uid: str) -> Json:
        (found,) = (each for each in self.of("Pod") if each["metadata"]["uid"] == uid)
        return found

    def read(self) -> Manifests:
        text = json.dumps({"kind": "List", "items": self.items})
        return read_manifests([Path("-")], BytesIO(text.encode()))

    def scan(
        self, *, docs_url: str | None = None, server: Version | None = None, **cluster: Any
    ) -> ScanReport:
        """Scan the dump. `cluster` has further facts of the cluster."""
        manifests = self.read()
        known = KnownCluster(
            dataclasses.replace(manifests.view, server_version=server),
            OperatorSettings(linger_image="registry.example/linger:1", docs_url=docs_url),
            title="dump.json",
            **cluster,
        )
        return asyncio.run(scan(DumpReader(manifests), known, None))

    def symptoms(self) -> dict[str, SymptomReport]:
        return {each.id: each for each in self.scan().symptoms}

    def exit_255(self) -> SymptomReport:
        return self.symptoms()["cri-o-9840"]


KEEPS_ALIVE: Json = {"namespaceSelector": {}, "remedies": {"postInitSleep": {}}}


def previewed(symptom: SymptomReport) -> PolicyPreview:
    assert symptom.preview is not None
    return symptom.preview


def selected_namespaces(policy: SettlePolicy) -> Collection[str]:
    assert policy.spec.namespace_selector is not None
    return policy.spec.namespace_selector.listed_values("kubernetes.io/metadata.name")


def proposed(symptom: SymptomReport) -> SettlePolicy:
    return parse_policy(yaml.safe_load(symptom.policy))


@pytest.fixture(scope="module")
def report() -> ScanReport:
    return Dump().scan()


def test_proposed_policies_change_the_pods_that_they_claim_and_only_without_their_audit_line(
    report: ScanReport,
) -> None:
    symptoms = [symptom for symptom in report.symptoms if symptom.policy]
    # The RuntimeClass against relabelling does not exist, so its policy would change nothing.
    assert {each.id for each in symptoms} == WITH_POLICY
    # The class for volatile mounts exists, and so do the nodes for it.
    assert "onfigure" not in "".join(each.advice for each in symptoms)
    view = Dump().read().view
    for symptom in symptoms:
        policy = proposed(symptom)
        assert policy.spec.action == "Audit"
        assert selected_namespaces(policy) == {"ci"}
        (line,) = (each for each in symptom.policy.splitlines(True) if "action: Audit" in each)
        acting = parse_policy(yaml.safe_load(symptom.policy.replace(line, "")))
        plants = [plant for plant in PLANTS if plant.symptom == symptom.id]
        changed = [
            plant.name
            for plant in plants
            for preview in preview_all(
                Document(plant.pod("ci")),
                dataclasses.replace(view, policies=PolicySet([acting])),
                OperatorSettings(linger_image="registry.example/linger:1"),
            )
            if isinstance(preview, Preview)
            and any(outcome.changed for outcome in preview.decided.decision.outcomes)
        ]
        phrase = f"changes {len(plants)} of the {len(plants)} pods found"
        assert previewed(symptom).phrase == phrase
        assert changed == [plant.name for plant in plants]
        assert f"# The policy {phrase}." in symptom.policy


@pytest.mark.parametrize(("init_containers", "expected"), [("*", True), ("other", False)])
def test_policy_of_any_name_that_only_reports_is_changed_and_not_doubled(
    init_containers: str, expected: bool
) -> None:
    planted = Dump()
    every = {"containers": ["*"], "initContainers": [init_containers]}
    for item in planted.of("SettlePolicy"):
        item["spec"] = KEEPS_ALIVE | {"action": "Audit", "remedies": {"postInitSleep": every}}
    found = planted.exit_255()
    assert previewed(found).is_audited is expected
    assert ("once you delete `action: Audit` there." in found.advice) is expected


@pytest.mark.parametrize(("runtime_class", "expected"), [(None, True), ("kata", False)])
def test_nodes_are_configured_only_where_a_class_is_lacking(
    runtime_class: str | None, expected: bool
) -> None:
    """A pod that names another class stays unchanged, whatever the nodes have."""
    planted = Dump(without="RuntimeClass")
    for name in ("kata", "selinux-fix-runtime-class") if runtime_class else ("kata",):
        made = {"kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
        planted.items.append({"apiVersion": "node.k8s.io/v1", **made})
    for item in planted.of("Pod") if runtime_class else ():
        item["spec"]["runtimeClassName"] = runtime_class
    preview = previewed(planted.symptoms()["crio-selinux-relabel"])
    assert bool(preview.node_configuration) is expected


def test_policy_in_force_is_named_only_for_pods_that_it_covers() -> None:
    planted = Dump()
    for item in planted.of("SettlePolicy"):
        item["spec"] = KEEPS_ALIVE
    report = planted.scan()
    (found,) = (each for each in report.symptoms if each.id == "cri-o-9840")
    assert found.policy == ""
    assert "Policy covered settles new pods like these already (1 pod)." in found.advice
    assert (
        "would leave 1 pod unchanged: policy covered sets postInitSleep for them, but not for "
        "these containers."
    ) in found.advice
    defects = {each.defect: each for each in report.defects}
    assert defects["cri-o-9840"].policies == ("covered",)


@pytest.mark.parametrize(
    "name", ["init-POD", "step-0123456789abcdef0", "drone-0a9s8d7f6g5h4j3k2l1q", "pi-1733020000"]
)
def test_proposed_policy_names_no_container_that_only_one_pod_has(name: str) -> None:
    planted = Dump()
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "pi-1733020000", "controller": True}
    for item in planted.of("Pod"):
        item["metadata"]["ownerReferences"] = [job | {"uid": "j"}]
        for each in (
            *item["spec"].get("initContainers", ()),
            *item["status"].get("initContainerStatuses", ()),
        ):
            each["name"] = name.replace("POD", item["metadata"]["name"])
    (remedy,) = yaml.safe_load(planted.exit_255().policy)["spec"]["remedies"].values()
    assert remedy["initContainers"] == ["*"]
    assert "*" not in remedy["containers"]


@pytest.mark.parametrize("in_force", [True, False])
def test_no_policy_is_proposed_for_pods_that_are_kept_alive(in_force: bool) -> None:
    planted = Dump()
    for spec in (planted.pod(name)["spec"] for name in ("init-255", "step-255")):
        containers = spec.get("initContainers", spec["containers"])
        containers[0]["command"].insert(0, "/podsettle/linger")
    for item in planted.of("SettlePolicy") if in_force else ():
        item["spec"] = KEEPS_ALIVE
    found = planted.exit_255()
    assert (found.policy, found.pods) == ("", 2)
    assert (
        "would leave 2 pods unchanged: postInitSleep keeps their containers alive already. If "
        "CRI-O's log"
    ) in found.advice
    assert symptom_line(found).startswith("cri-o-9840: 2 pods, possible, on node crio-1")


def test_proposed_policy_is_only_for_the_pods_that_are_not_kept_alive() -> None:
    planted = Dump()
    kept_alive = json.loads(json.dumps(planted.pod("init-255")))
    kept_alive["metadata"] |= {"namespace": "settled", "uid": "settled"}
    kept_alive["spec"]["initContainers"][0]["command"].insert(0, "/podsettle/linger")
    # A policy for its other containers would change it.
    kept_alive["spec"]["initContainers"].append({"name": "other", "command": ["other"]})
    planted.items.append(kept_alive)
    report = planted.scan()
    (found,) = (each for each in report.symptoms if each.id == "cri-o-9840")
    assert previewed(found).phrase == "changes 2 of the 3 pods found"
    assert "It leaves 1 pod unchanged: postInitSleep keeps their containers alive" in found.advice
    assert selected_namespaces(proposed(found)) == {"ci"}
    assert "cri-o-9840: 3 pods, 2 likely, 1 possible, on node crio-1" in render_html(report)


def test_proposed_policy_is_previewed_on_the_template_of_a_workload() -> None:
    container = {"name": "main", "image": "registry.example/app:2"}  # It has no command any more.
    planted = Dump()
    planted.items.append({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "nightly", "namespace": "ci"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    })  # fmt: skip
    found = planted.exit_255()
    assert previewed(found).phrase == "changes 1 of the 2 pods found"
    assert "It leaves 1 pod unchanged: NoCommand: " in found.advice


def test_proposed_policy_says_that_no_node_has_the_labels_of_its_class() -> None:
    planted = Dump()
    (made,) = planted.of("RuntimeClass")
    # Labels in a dump may be anything. U+0085 is a line break in YAML.
    made["scheduling"] = {"nodeSelector": {"rootfs": "volatile\x85spec: {}"}}
    found = planted.symptoms()["containerd-slow-umount"]
    sentence = (
        "RuntimeClass overlay-volatile: no known node has the labels of the class "
        "(rootfs=volatile{}spec: {{}}), so the pod waits for one."
    )
    assert sentence.format("\x85") in found.advice
    comments = [line for line in found.policy.split("\n") if line.startswith("#")]
    assert sentence.format("\\x85") in " ".join(line.removeprefix("# ") for line in comments)
    assert proposed(found).spec.runtime_classes() == ("overlay-volatile",)
    planted.items = [each for each in planted.items if each["kind"] != "Node"]
    found = planted.symptoms()["containerd-slow-umount"]
    assert "no known node" not in found.advice + found.policy


def test_proposed_policy_does_not_replace_one_that_changes_pods() -> None:
    planted = Dump()
    for item in planted.of("SettlePolicy"):
        item["metadata"]["name"] = "settle-postinitsleep"
    policy = proposed(planted.exit_255())
    assert policy.metadata.name == "settle-postinitsleep-2"
    # Of two policies with one priority, the first name would set the remedy.
    assert policy.spec.priority == -1


def test_proposed_policy_replaces_no_policy_with_another_spec() -> None:
    def proposed_beside(*policies: Json) -> Json:
        planted = Dump()
        planted.items += policies
        policy: Json = yaml.safe_load(planted.exit_255().policy)
        return policy

    first = proposed_beside()
    assert proposed_beside(first) == first
    other = json.loads(json.dumps(first))
    other["spec"]["remedies"]["postInitSleep"] = {"sleep": "20ms"}
    assert proposed_beside(other)["metadata"]["name"] == first["metadata"]["name"] + "-2"


@pytest.mark.parametrize("flags", [[], ["--manifests", "a dump.json", "--manifests", "FILE"]])
def test_names_are_arguments_that_explain_takes(flags: list[str], report: ScanReport) -> None:
    of_cluster = [] if flags else ClusterFlags(context="a b", as_groups=("ops",)).words()
    lines = [shlex.split(line) for line in render_names(report, flags, *of_cluster).splitlines()]
    assert lines
    targets = [parse_target(name) for name, *_ in lines]
    kinds = {each.title.partition("/")[0] for each in targets if isinstance(each, ObjectTarget)}
    assert kinds == ({"pod"} if flags else {"pod", "deploy", "job"})
    chosen = flags or ["--context=a b", "--as-group=ops"]
    assert all(words == ["-n", "ci", *chosen] for _, *words in lines)
    assert (["deployment.apps/web", "-n", "ci", *chosen] in lines) is (flags == [])


def test_names_are_those_of_pods_if_another_group_has_the_kind(report: ScanReport) -> None:
    replace = msgspec.structs.replace
    symptoms = tuple(
        replace(each, findings=tuple(replace(x, group="apps.kruise.io") for x in each.findings))
        for each in report.symptoms
    )
    lines = render_names(replace(report, symptoms=symptoms)).splitlines()
    assert lines
    assert all(line.startswith("pod/") for line in lines)


def test_pod_that_a_dump_has_twice_counts_once(report: ScanReport) -> None:
    planted = Dump()
    planted.items += [*planted.of("Pod"), *planted.of("Event")]
    twice = planted.scan()
    assert twice == msgspec.structs.replace(report, scanned_at=twice.scanned_at)


def test_kind_of_another_api_group_in_a_dump_is_another_kind(report: ScanReport) -> None:
    planted = Dump()
    for kind, group in (("Node", "longhorn.io"), ("Event", "audit.k8s.io"), ("Pod", "x.example")):
        for item in planted.of(kind):
            metadata = {**item["metadata"], "creationTimestamp": "2020-01-01T00:00:00Z"}
            planted.items.append({**item, "apiVersion": f"{group}/v1", "metadata": metadata})
    others = planted.scan()
    assert others == msgspec.structs.replace(report, scanned_at=others.scanned_at)


@pytest.mark.parametrize("begins_with_older", [True, False])
def test_newest_copy_of_a_pod_in_a_dump_counts(begins_with_older: bool, report: ScanReport) -> None:
    planted, older, newer = Dump(without="Pod"), Dump().of("Pod"), Dump().of("Pod")
    for version, pods in (("9", older), ("10", newer)):
        for pod in pods:
            pod["metadata"]["resourceVersion"] = version
    for pod in older[::2]:
        pod["status"] = {}
    planted.items += [*older, *newer] if begins_with_older else [*newer, *older]
    found = planted.scan()
    assert found == msgspec.structs.replace(report, scanned_at=found.scanned_at)


def test_nulls_of_a_dump_are_empty_texts_in_labels_and_else_absent_fields(
    report: ScanReport,
) -> None:
    planted = Dump()
    for kind in ("Pod", "Node", "Namespace"):
        for each in planted.of(kind):
            each["metadata"].setdefault("labels", {})["team"] = None
    for each in planted.of("Pod"):
        each["metadata"]["generateName"] = each["status"]["message"] = None
        for status in each["status"].get("initContainerStatuses", ()):
            status["state"]["terminated"].setdefault("reason", None)
    for each in planted.of("Event"):
        each["metadata"]["creationTimestamp"] = each["series"] = None
        each["involvedObject"].setdefault("fieldPath", None)
    found = planted.scan()
    assert found.pods == report.pods
    assert [each.verdict for each in found.symptoms] == [each.verdict for each in report.symptoms]


def test_malformed_mounts_of_a_dump_do_not_end_the_scan(report: ScanReport) -> None:
    planted = Dump()
    for each in planted.of("Pod"):
        each["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]
        each["spec"]["containers"][0]["volumeMounts"] = [{"name": 5}]
    assert planted.scan().pods == report.pods


def test_policies_are_exported_where_the_api_server_has_no_settle_policies() -> None:
    right = Right("list", "podsettle.dev", "settlepolicies")

    def command(server: Version, *unread: Unread, only: str = "") -> str:
        planted = Dump(without="Pod" if only else "")
        planted.items += [Dump().pod(only)] if only else []
        return planted.scan(unread=unread, server=server).apply_command

    absent = Unread("settlepolicies", right, "podsettle is not installed")
    created = "podsettle scan -o policy | kubectl create -f -"
    exported = "podsettle scan -o policy | podsettle export - | kubectl apply -f -"
    assert command(Version(1, 36), absent) == exported
    # No native policy does what postInitSleep does with the helper.
    assert command(Version(1, 36), absent, only="init-255") == created
    assert command(Version(1, 35), absent) == created
    assert command(Version(1, 36), Unread("settlepolicies", right)) == created
    assert command(Version(1, 36)) == created


def test_pods_of_the_cluster_itself_are_in_no_proposed_policy() -> None:
    found = Dump("kube-ci").exit_255()
    assert (found.policy, found.pods) == ("", 2)
    assert "in a namespace of the cluster itself" in found.advice


def test_mirror_pods_are_in_no_proposed_policy_in_any_namespace() -> None:
    def exit_255(namespace: str, *mirrors: str) -> SymptomReport:
        planted = Dump(namespace)
        for mirror in mirrors:
            annotations = {"kubernetes.io/config.mirror": "0123"}
            planted.pod(mirror)["metadata"]["annotations"] = annotations
        return planted.exit_255()

    found = exit_255("kube-ci", "init-255", "step-255")
    assert (found.policy, found.pods) == ("", 2)
    assert "leave 2 pods unchanged: MirrorPod: The pod is a mirror pod. " in found.advice
    assert "in a namespace of the cluster itself" not in found.advice
    found = exit_255("ci", "init-255")
    assert "It leaves 1 pod unchanged: MirrorPod: " in found.advice
    (remedy,) = yaml.safe_load(found.policy)["spec"]["remedies"].values()
    assert remedy == {"initContainers": [], "containers": ["main"]}


def test_no_policy_is_proposed_for_pods_whose_operator_deletes_changed_ones() -> None:
    planted = Dump()
    planted.pod("init-255")["metadata"] |= owned_by("KafkaCluster", "events")
    found = planted.exit_255()
    assert "It leaves 1 pod unchanged: releases of their operator delete a pod" in found.advice
    (remedy,) = yaml.safe_load(found.policy)["spec"]["remedies"].values()
    assert remedy == {"initContainers": [], "containers": ["main"]}


OF_EVENTS = {"crio-selinux-relabel", "fsgroup-ownership-walk"}


def test_symptoms_of_a_kind_that_a_dump_lacks_are_not_looked_at() -> None:
    for kind, symptoms in (
        ("Pod", {"cri-o-9840", "containerd-slow-umount", "not-settled", *OF_EVENTS}),
        ("Event", {"missing-handler", *OF_EVENTS}),
        ("CertificateSigningRequest", {"kubelet-serving-certificate"}),
    ):
        verdicts = {key: each.verdict for key, each in Dump(without=kind).symptoms().items()}
        unread = {key: each for key, each in verdicts.items() if "not looked at" in each.text}
        assert symptoms <= unread.keys(), kind
        for verdict in unread.values():
            assert f"{kind.lower()}s (" in verdict.text
            assert verdict.answer is not Answer.NONE


def test_expired_events_are_unknown_and_never_none() -> None:
    planted = Dump()
    for item in planted.of("Event"):
        item["reason"] = "Scheduled"
    for item in planted.of("Pod"):
        item["status"] = {"phase": "Running"}
    verdicts = {key: each.verdict for key, each in planted.symptoms().items()}
    for symptom in ("missing-handler", "kubelet-serving-certificate", *OF_EVENTS):
        assert verdicts[symptom].answer is Answer.UNKNOWN
        assert "hour" in verdicts[symptom].text
    assert verdicts["cri-o-9840"].answer is Answer.NONE


def test_approvals_of_a_dump_are_compared_with_the_time_of_the_dump() -> None:
    planted = Dump()
    for item in planted.of("Node"):
        item["status"]["conditions"] = [{"lastHeartbeatTime": "2026-11-22T11:30:00Z"}]
    certificates = planted.symptoms()["kubelet-serving-certificate"]
    assert {each.certainty for each in certificates.findings} == {"possible"}


def unsettled_pod(
    metadata: Json, command: list[str] | None = None, **cluster: Any
) -> tuple[Finding, ...]:
    """What is found at the pod that is not settled, with other metadata or another command."""
    planted = Dump()
    (pod,) = (each for each in planted.of("Pod") if each["metadata"]["name"] == "unsettled")
    pod["metadata"] |= metadata
    if command is not None:
        pod["spec"]["initContainers"][0]["command"] = command
    return planted.scan(**cluster).symptoms[-1].findings


def test_pod_is_only_likely_not_settled_if_nodes_were_not_looked_at() -> None:
    unsettled = Dump(without="Node").scan().symptoms[-1]
    assert [each.certainty for each in unsettled.findings] == ["likely"]
    assert "not looked at" in unsettled.verdict.text


def test_pod_of_no_template_is_settled_when_its_owner_creates_another() -> None:
    for kind, name, advice in (
        (None, "", "Delete the pod and create it again."),
        ("Pod", "driver", "The next pod of the same owner is settled when it is created."),
        ("Job", "nightly", "The next pod of Job/nightly is settled when it is created."),
    ):
        version = "batch/v1" if kind == "Job" else "v1"
        owner = {"apiVersion": version, "kind": kind, "name": name, "controller": True}
        (finding,) = unsettled_pod({"ownerReferences": [owner] if kind else []})
        assert finding.advice == advice


def test_scan_promises_nothing_to_pods_for_which_podsettle_is_not_called() -> None:
    unsettled = Dump().scan(calls=WebhookCalls()).symptoms[-1]
    (finding,) = unsettled.findings
    assert finding.certainty == "certain"
    assert finding.sentence.endswith(
        "a new pod would get nothing, because podsettle is not called: no "
        "MutatingWebhookConfiguration is podsettle's"
    )
    for advice in (unsettled.advice, finding.advice):
        assert advice == "`podsettle doctor` says how to make the API server call podsettle."


def test_pod_is_only_likely_to_be_settled_if_the_webhook_configuration_is_not_readable() -> None:
    (finding,) = unsettled_pod({}, calls=WebhookCalls(readable=False))
    assert finding.certainty == "likely"
    assert finding.sentence.startswith("policy covered covers the pod")
    assert "(not known: it needs the right to list mutating" in finding.sentence
    assert finding.advice == "kubectl -n ci rollout restart deployment/api"


@pytest.mark.parametrize(
    ("applied", "certainty", "words"),
    [
        (
            "other/kubeletGate,covered/postInitSleep",
            "likely",
            "the annotations say that podsettle applied covered/postInitSleep, but the pod does "
            "not have it everywhere; a new pod would get postInitSleep: ",
        ),
        (
            "other/kubeletGate",
            "certain",
            "the pod is older than policy covered; a new pod would get postInitSleep: ",
        ),
    ],
)
def test_annotation_on_what_was_applied_is_compared_with_the_decision_of_today(
    applied: str, certainty: str, words: str
) -> None:
    metadata = {"annotations": {"podsettle.dev/applied": applied}}
    later = {"covered": datetime(2026, 11, 22, 11, tzinfo=UTC)}
    (finding,) = unsettled_pod(metadata, created=later)
    assert finding.certainty == certainty
    assert finding.sentence.startswith(words)
    assert finding.evidence[0].value == applied


def test_pod_that_is_being_deleted_is_not_called_unsettled() -> None:
    assert unsettled_pod({"deletionTimestamp": NOW.isoformat()}) == ()


def test_pod_that_needs_a_helper_is_only_likely_not_settled_if_the_helper_is_assumed() -> None:
    for command, certainty in ((["sh", "-c", "true"], "certain"), (["init"], "likely")):
        (finding,) = unsettled_pod({}, command, why_image_is_assumed="there is none")
        assert finding.certainty == certainty


def test_decisions_that_fail_are_named_and_never_count_as_none() -> None:
    found = Dump().scan(docs_url="https://e/\x1b[31m")
    (unsettled,) = (each for each in found.symptoms if each.id == "not-settled")
    assert unsettled.verdict.answer is Answer.UNKNOWN
    (area,) = (each for each in found.areas if each.name == "decisions")
    assert area.looked is Looked.PARTLY
    assert "podsettle made no decision: InternalError for " in unsettled.verdict.text
    assert "the first is pod ci/" in unsettled.verdict.text


def test_policy_for_more_namespaces_than_it_names_says_so() -> None:
    planted = Dump()
    for number in range(60):
        copy = Dump().pod("init-255")
        copy["metadata"]["namespace"] = f"team-{number:02}"
        planted.items.append(copy)
    found = planted.exit_255()
    assert "changes 51 of the 62 pods found. It leaves 11 pods unchanged" in found.advice
    assert "# It names 50 of 61 namespaces. Select all of them by a label.\n" in found.policy
    assert len(selected_namespaces(proposed(found))) == 50


def test_findings_without_a_time_are_counted_beside_the_timeline(report: ScanReport) -> None:
    text = render_html(report)
    symptom = next(each for each in report.symptoms if each.id == "crio-selinux-relabel")
    untimed = sum(each.count for each in symptom.findings if each.first_seen is None)
    assert untimed
    assert f"{symptom.count} times, {untimed} at an unknown time" in text


def test_nodes_are_counted_by_defect_with_the_release_that_cures_them(report: ScanReport) -> None:
    defects = {each.defect: each for each in report.defects}
    assert (defects["cri-o-9840"].affected, defects["cri-o-9840"].total) == (1, 8)
    # The policy covers none of the pods that were found.
    assert defects["cri-o-9840"].policies == ()
    # No Node shows whether its volumes have many files, or its mounts are volatile.
    for name, possible in (("fsgroup-ownership-walk", 8), ("containerd-slow-umount", 1)):
        assert (defects[name].affected, defects[name].possible) == (0, possible)
    text = " ".join(render_text(report, details=True).split())
    assert "containerd-slow-umount 1 overlayfs mounts without the option" in text
    (group,) = (each for each in report.nodes if each.runtime == "cri-o 1.33.12")
    cures = {each.defect: each.cured_by for each in group.defects}
    assert cures["cri-o-9840"] == "cri-o 1.33.13"
    assert cures["crio-selinux-relabel"] == ""
    (need,) = report.needs
    assert (need.policy, need.remedy, need.status) == ("covered", "postInitSleep", "True")
    assert "crio-1" in need.message


def test_details_have_the_evidence_in_lines_of_80_columns(report: ScanReport) -> None:
    details = render_text(report, details=True)
    assert all(len(line) <= 80 for line in details.splitlines() if "kubectl" not in line)
    evidence = "status.initContainerStatuses[0].state.terminated.exitCode: 255"
    assert evidence in " ".join(details.split())


def test_json_and_details_name_every_node() -> None:
    names = tuple(f"ip-10-0-1-{number}.eu-central-1.compute.internal" for number in range(9))
    planted = Dump()
    planted.items = [{"kind": "Node", "metadata": {"name": name}} for name in names]
    report = planted.scan()
    (group,) = json.loads(to_json(report))["nodes"]
    assert tuple(group["names"]) == names
    for text in (render_text(report, details=True), render_html(report)):
        assert all(re.search(rf"{name}\b", text) for name in names)


def test_command_has_the_flags_of_the_scan_and_stays_on_one_line() -> None:
    flags = ClusterFlags(f"/{'long/' * 20}a file", "two")
    report = Dump().scan(flags=flags)
    (finding,) = report.symptoms[-1].findings
    words = ["kubectl", "-n", "ci", "rollout", "restart", "deployment/api"]
    words[1:1] = [f"--kubeconfig={flags.kubeconfig}", "--context=two"]
    assert shlex.split(finding.advice) == words
    assert f"    - {finding.advice}\n" in render_text(report, details=True)
    assert report.apply_command.count(f"'--kubeconfig={flags.kubeconfig}' --context=two") == 2


class _Links(HTMLParser):
    """Collects what an HTML document would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        named = ("src", "href", "style", "action")
        self.targets += [value or "" for name, value in attrs if name in named]
        assert not [name for name, _ in attrs if name.startswith("on")]


def test_html_loads_nothing_and_allows_only_its_own_style_sheet(report: ScanReport) -> None:
    text = render_html(report)
    links = _Links()
    links.feed(text)
    assert not links.tags & {"script", "link", "img", "iframe", "form", "object"}
    assert all(target.startswith("#") for target in links.targets)
    style = re.search(r"<style>(.*)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in html.unescape(text)


def test_html_has_bars_of_certain_defects_alone_and_a_column_for_each_time(
    report: ScanReport,
) -> None:
    text = render_html(report)
    titles = re.findall(r"<title>([^<]*)</title></rect>", text)
    bars = [each for each in titles if "affected" in each]
    assert bars == ["cri-o-9840: 1 affected", "cri-o-9840: 7 not affected"]
    assert not any("possible" in each for each in titles)
    assert "cri-o-9840: 2 from 2026-11-22 10:00:00Z" in titles
    # The creation of a pod that is not settled is no time of a symptom.
    assert "not-settled" not in text.partition("<h2>When</h2>")[2].partition("<h2>")[0]


def test_html_escapes_texts_of_tenants() -> None:
    planted = Dump()
    planted.items = json.loads(json.dumps(planted.items).replace("TaskRun", "<script>alert(1)"))
    for item in planted.of("Event"):
        item["message"] += " <img src=x onerror=alert(1)>"
    text = render_html(planted.scan())
    assert "&lt;script&gt;" in text
    assert "<script" not in text
    assert "<img" not in text


def test_events_of_the_new_api_group_are_read_with_the_time_of_their_series() -> None:
    planted = Dump()
    for item in planted.of("Event"):
        item["apiVersion"] = "events.k8s.io/v1"
        item["regarding"], item["note"] = item.pop("involvedObject"), item.pop("message")
        del item["firstTimestamp"], item["lastTimestamp"]
        item["eventTime"] = "2026-11-22T10:00:01.000001Z"
        item["series"] = {"count": 3, "lastObservedTime": "2026-11-22T10:20:00.000002Z"}
    report = planted.scan()
    symptoms = {each.id: each for each in report.symptoms}
    assert all(symptoms[each].findings for each in OF_EVENTS)
    (handler,) = (f for f in symptoms["missing-handler"].findings if f.certainty == "certain")
    assert handler.last_seen is not None
    assert format_time(handler.last_seen) == "2026-11-22 10:20:00Z"
    assert "could not be decoded" not in render_text(report)


def test_report_has_no_control_character_of_a_tenant_and_no_command_with_one() -> None:
    """Names of owners and messages contain what terminals and browsers act upon."""
    planted = Dump()
    hostile = "x\x1b]0;forged\x07\u202e\r ;touch /tmp/forged #"
    for item in planted.items:
        for owner in item["metadata"].get("ownerReferences", ()):
            owner |= {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": hostile}
    for item in planted.of("Event"):
        item["message"] += f"\n{hostile}"
    report = planted.scan()
    for text in (render_text(report, details=True), render_html(report)):
        # The style sheet and the policies of a page have line breaks.
        assert [each for each in text if not each.isprintable() and each != "\n"] == []
        assert "\\u202e" in text
        assert "rollout restart" not in text


def test_html_of_many_findings_stays_below_500_kib() -> None:
    planted = Dump()
    for number in range(100):
        for copy in Dump().of("Pod"):
            name = f"{copy['metadata']['name']}-{number}"
            owner = {"kind": "Job", "name": f"{name}-{'x' * 200}", "controller": True}
            copy["metadata"] |= {"name": name, "ownerReferences": [owner]}
            planted.items.append(copy)
    report = planted.scan()
    assert sum(len(symptom.findings) for symptom in report.symptoms) > 1_000
    assert len(render_html(report).encode()) < 500 * 1024
    assert "more at other workloads" in render_text(report, details=True)
    assert len(render_text(report).splitlines()) < 150


@pytest.mark.parametrize("time", ["0001-01-02T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_impossible_time_in_an_event_is_left_out(time: str, report: ScanReport) -> None:
    planted = Dump()
    for item in planted.of("Event"):
        item |= {"firstTimestamp": time, "lastTimestamp": time, "eventTime": time}
        item["metadata"]["creationTimestamp"] = time
    found = planted.scan()
    assert {each.symptom for each in findings(found)} == {each.symptom for each in findings(report)}
    for render in (render_text, render_html, to_json):
        assert time[:4] not in render(found)


def test_event_of_the_future_is_forged() -> None:
    planted = Dump()
    for item in planted.of("Event"):
        item["lastTimestamp"] = "2190-01-01T00:00:00Z"
    found = planted.scan()
    assert "fsgroup-ownership-walk" in {each.symptom for each in findings(found)}
    assert "2190" not in to_json(found)


def test_long_texts_of_tenants_are_cut_in_every_format() -> None:
    planted, long = Dump(), 100_000 * "\N{PILE OF POO}"
    for item in planted.items:
        for owner in item["metadata"].get("ownerReferences", ()):
            owner |= {"apiVersion": long, "kind": long, "name": long, "uid": long}
    for item in planted.of("Event"):
        item["message"] += long
        item["metadata"]["annotations"] = {"long": long}
        item["involvedObject"]["fieldPath"] += long
    found = planted.scan()
    assert findings(found)
    for render in (render_text, partial(render_text, details=True), render_html, to_json):
        assert len(render(found)) < 200_000


def test_events_beyond_the_limit_of_memory_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collect, "MAX_EVENTS_BYTES", 3_000)
    found = Dump().scan()
    (area,) = (each for each in found.areas if each.name == "events")
    assert area.looked is Looked.PARTLY
    assert "those with texts of symptoms take more than 3,000 bytes" in area.why
    certain = [each for each in findings(found) if each.certainty == "certain"]
    assert len(certain) < sum(plant.certainty == "certain" for plant in PLANTS)


def findings(report: ScanReport) -> list[Finding]:
    return [finding for symptom in report.symptoms for finding in symptom.findings]


CREATED = datetime(2026, 11, 20, 10, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TIMES = {
    "early": CREATED - SECOND,
    "earlier": CREATED - 2 * SECOND,
    "same": CREATED,
    "late": CREATED + SECOND,
}
MISSED = "; podsettle was not called, or the policy has been changed since"


def test_pod_is_compared_with_each_policy() -> None:
    cases: list[tuple[list[str], str]] = [
        (["early"], f"missed: the pod is younger than policy early{MISSED}"),
        (["earlier", "early"], f"missed: the pod is younger than policy earlier, early{MISSED}"),
        (["late"], "the pod is older than policy late"),
        (["same"], "the pod was created in the same second as policy same"),
        (
            ["late", "early"],
            f"missed: the pod is older than policy late and is younger than policy early{MISSED}",
        ),
    ]
    assert [(policies, age_clause(CREATED, policies, TIMES)) for policies, _ in cases] == cases


def test_nothing_is_said_if_one_age_is_not_known() -> None:
    assert age_clause(None, ["early"], TIMES) == ""
    assert age_clause(CREATED, ["early", "unseen"], TIMES) == ""
