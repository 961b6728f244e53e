"""Tests of the explanation of a workload: its next pod, and its pods in groups."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.support.factories import (
    IMAGE,
    Json,
    container,
    mutate_pod,
    namespace,
    pod,
    policy,
    view,
)
from webhook.core.admission.decider import OperatorSettings
from webhook.core.pod import decode_pod
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.explain.target import ObjectTarget, parse_target
from webhook.inspect.explain.text import as_text
from webhook.inspect.explain.workload import PodGroups, explain_workload
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.webhook_calls import WebhookCalls

WEB = parse_target("deploy/web")
BUILD = parse_target("job/build")
TEKTON = policy("tekton", remedies={"postInitSleep": {}})
CLUSTER = KnownCluster(
    view(TEKTON, namespaces=[namespace("ci")]), OperatorSettings(linger_image=IMAGE)
)
CALLING = WebhookCalls(
    (
        {
            "name": "opt-in.podsettle.dev",
            "rules": [
                {
                    "operations": ["CREATE"],
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods"],
                }
            ],
        },
    )
)
SUMMARY = {"podsettle.dev/summary": "a is\nfine.", "podsettle.dev/applied": "tekton/postInitSleep"}
SETTLED = mutate_pod(pod(container("a", "/bin/a")), CLUSTER.view)
SETTLED["metadata"]["annotations"] |= SUMMARY
FORGED = pod(annotations=SUMMARY)


def workload(kind: str, name: str) -> Json:
    template = pod(container("a", "/bin/a"))
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "ci"},
        "spec": {"template": {"metadata": {}, "spec": template["spec"]}},
    }


def groups(*pods: Json) -> PodGroups:
    made = PodGroups()
    for index, each in enumerate(pods):
        made.add(f"web-{index}", decode_pod(msgspec.json.encode(each)))
    return made


def test_pods_are_grouped_by_what_they_tell() -> None:
    assert isinstance(WEB, ObjectTarget)
    pods = groups(SETTLED, pod(), SETTLED, FORGED)
    explained = explain_workload(WEB, workload("Deployment", "web"), pods, CLUSTER, "ci")
    assert explained.verdict == "podsettle would change the next pod of this workload."
    assert [(each.count, each.state, each.examples) for each in explained.pods] == [
        (2, "a is fine.", ["web-0", "web-2"]),
        (1, "podsettle did not change the pod.", ["web-1"]),
        (
            1,
            "The annotations say: a is fine. But the pod shows no sign of postInitSleep.",
            ["web-3"],
        ),
    ]
    assert explained.advice == [
        "2 pods have no remedy, because podsettle changes only new pods. This replaces them: "
        "`kubectl -n ci rollout restart deployment/web`."
    ]
    assert "  2 (such as web-0): a is fine.\n" in as_text(explained)


def test_pods_that_are_copies_without_annotations_are_told_apart_and_lack_nothing() -> None:
    assert isinstance(WEB, ObjectTarget)
    copied = {**SETTLED, "metadata": {"name": "copy"}}
    explained = explain_workload(
        WEB, workload("Deployment", "web"), groups(SETTLED, copied), CLUSTER, "ci"
    )
    assert "its annotations that name them (it may be a copy)" in explained.pods[1].state
    assert explained.advice == []


def test_commands_use_the_cluster_that_the_flags_choose() -> None:
    pods = groups(pod(container("a", "/bin/a")))
    assert isinstance(WEB, ObjectTarget)
    flags = ClusterFlags("kc b", "prod")
    chosen = "'--kubeconfig=kc b' --context=prod"
    cluster = replace(CLUSTER, flags=flags, calls=WebhookCalls())
    explained = explain_workload(WEB, workload("Deployment", "web"), pods, cluster, "ci")
    assert f"`podsettle doctor {chosen}` checks the installation." in explained.notes[0]
    cluster = replace(CLUSTER, flags=flags, calls=WebhookCalls(readable=False))
    explained = explain_workload(WEB, workload("Deployment", "web"), pods, cluster, "ci")
    assert f"`kubectl {chosen} -n ci rollout restart deployment/web`" in explained.advice[0]
    (unknown,) = explained.unknown
    assert unknown.command.startswith(f"kubectl {chosen} auth can-i list ")


def test_policy_that_only_reports_is_named_as_the_cause() -> None:
    assert isinstance(WEB, ObjectTarget)
    audited = policy("a", action="Audit", remedies={"postInitSleep": {}})
    known = KnownCluster(
        view(audited, namespaces=[namespace("ci")]), OperatorSettings(linger_image=IMAGE)
    )
    explained = explain_workload(WEB, workload("Deployment", "web"), groups(pod()), known, "ci")
    assert explained.verdict == (
        "podsettle would not change the next pod of this workload, because policy a only reports "
        "(`action: Audit`)."
    )


def test_job_has_no_command_that_replaces_its_pods() -> None:
    assert isinstance(BUILD, ObjectTarget)
    explained = explain_workload(BUILD, workload("Job", "build"), groups(pod()), CLUSTER, "ci")
    assert explained.advice == ["1 pod has no remedy, because podsettle changes only new pods."]


def test_workload_whose_pods_are_all_settled_needs_nothing() -> None:
    assert isinstance(WEB, ObjectTarget)
    pods = groups(SETTLED)
    explained = explain_workload(WEB, workload("Deployment", "web"), pods, CLUSTER, "ci")
    assert explained.advice == []


def test_number_of_groups_is_bounded() -> None:
    assert isinstance(WEB, ObjectTarget)
    different = [pod(annotations={"podsettle.dev/summary": f"pod {index}."}) for index in range(50)]
    pods = groups(*different, *different)
    assert len(pods.all) == 21
    assert sum(group.count for group in pods.all) == 100
    assert all(len(group.examples) <= 3 for group in pods.all)


def test_pods_without_a_summary_are_told_by_what_was_applied() -> None:
    settled = mutate_pod(pod(container("a", "/bin/a")), CLUSTER.view)
    del settled["metadata"]["annotations"]["podsettle.dev/summary"]
    newer = pod(annotations={"podsettle.dev/applied": "p/unheardOf"})
    assert [each.state for each in groups(settled, newer).all] == [
        "podsettle applied tekton/postInitSleep.",
        "The annotations say: podsettle applied p/unheardOf.",
    ]


def test_pods_that_lack_a_remedy_of_another_policy_are_counted() -> None:
    assert isinstance(WEB, ObjectTarget)
    gate = policy("gate", remedies={"kubeletGate": {}})
    cluster = KnownCluster(
        view(TEKTON, gate, namespaces=[namespace("ci")]), OperatorSettings(linger_image=IMAGE)
    )
    pods = groups(SETTLED, SETTLED, pod())
    explained = explain_workload(WEB, workload("Deployment", "web"), pods, cluster, "ci")
    (advice,) = explained.advice
    assert advice.startswith("1 pod has no remedy, because podsettle changes only new pods. 2 pods")
    assert "2 pods have only a part of the remedies" in advice


@pytest.mark.parametrize(
    ("calls", "called", "verdict"),
    [
        (
            WebhookCalls(),
            "False",
            "podsettle would not change the next pod of this workload, because the API server does "
            "not call podsettle for it.",
        ),
        (
            WebhookCalls(readable=False),
            "Unknown",
            "podsettle would change the next pod of this workload if the API server calls "
            "podsettle for it.",
        ),
        (CALLING, "True", "podsettle would change the next pod of this workload."),
    ],
)
def test_verdict_on_a_workload_depends_on_the_webhook_configuration(
    calls: WebhookCalls, called: str, verdict: str
) -> None:
    assert isinstance(WEB, ObjectTarget)
    cluster = replace(CLUSTER, calls=calls)
    explained = explain_workload(WEB, workload("Deployment", "web"), groups(pod()), cluster, "ci")
    assert (explained.called, explained.verdict) == (called, verdict)
    assert bool(explained.advice) == (called != "False")
    promised = "If the API server called podsettle, podsettle would decide:"
    assert (promised in as_text(explained)) == (called == "False")


def test_workload_without_init_containers_is_told_that_the_policy_selects_no_container() -> None:
    assert isinstance(WEB, ObjectTarget)
    document = workload("Deployment", "web")
    del document["spec"]["template"]["spec"]["initContainers"]
    explained = explain_workload(WEB, document, groups(), CLUSTER, "ci")
    assert (
        "  NoContainerSelected postInitSleep: selects none of the pod's containers (init "
        "containers: none; containers: main) (by tekton)\n"
    ) in as_text(explained)
    assert explained.nodes == []


def test_decision_that_fails_is_not_known() -> None:
    assert isinstance(WEB, ObjectTarget)
    broken = replace(CLUSTER, settings=OperatorSettings(None, IMAGE, "https://e/\x1b[31m"))
    explained = explain_workload(WEB, workload("Deployment", "web"), PodGroups(), broken, "ci")
    assert explained.verdict.startswith(
        "What podsettle would do to the next pod is not known: InternalError: "
    )
