"""Tests of the explanation of a workload: its next pod, and its pods in groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.explanations import explained
from tests.support.factories import IMAGE, Json, container, mutate_pod, namespace, pod, policy, view
from webhook.core.admission.decider import OperatorSettings
from webhook.core.policy.model import SettlePolicy
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.explain.report import Explanation, FoundSymptom, as_text
from webhook.inspect.installation import WebhookCalls
from webhook.inspect.known_cluster import KnownCluster

TEKTON = policy("tekton", remedies={"postInitSleep": {}})
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
CALLING = WebhookCalls(({"name": "opt-in.podsettle.dev", "rules": [RULE]},))
SUMMARY = {"podsettle.dev/summary": "a is\nfine.", "podsettle.dev/applied": "tekton/postInitSleep"}
WRITTEN = pod(container("a", "/bin/a"))


def cluster(*policies: SettlePolicy, **known: Any) -> KnownCluster:
    seen = view(*(policies or (TEKTON,)), namespaces=[namespace("ci")])
    return KnownCluster(seen, OperatorSettings(linger_image=IMAGE), **known)


SETTLED = mutate_pod(WRITTEN, cluster().view)
SETTLED["metadata"]["annotations"] |= SUMMARY
FORGED = pod(annotations=SUMMARY)


def explain(
    *pods: Json, known: KnownCluster, kind: str = "StatefulSet", others: Iterable[Json] = ()
) -> Explanation:
    """Return the explanation of the workload `web` with some pods, which run."""
    group = "batch" if kind == "Job" else "apps"
    template = {"metadata": {}, "spec": WRITTEN["spec"]}
    workload = {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": "ci"},
        "spec": {"template": template},
    }
    owner = {"apiVersion": f"{group}/v1", "kind": kind, "name": "web", "controller": True}
    owned = [
        {
            **each,
            "metadata": {**each["metadata"], "name": f"web-{index}", "ownerReferences": [owner]},
            "status": {"phase": "Running"},
        }
        for index, each in enumerate(pods)
    ]
    return explained(f"{kind.lower()}/web", known, workload, *owned, *others)


def lacking(found: Explanation) -> FoundSymptom:
    """Return the symptom of pods that lack a remedy."""
    (symptom,) = (each for each in found.symptoms if each.symptom == "not-settled")
    return symptom


def test_pods_that_a_deployment_owns_without_a_replica_set_are_not_of_its_template() -> None:
    found = explain(SETTLED, known=cluster(), kind="Deployment")
    assert found.pods == []
    assert "No pod of this workload was found." in found.notes


def test_pods_are_grouped_by_what_was_done_to_them() -> None:
    copied = {**SETTLED, "metadata": {"name": "copy", "namespace": "ci"}}
    found = explain(SETTLED, WRITTEN, SETTLED, FORGED, copied, known=cluster())
    assert found.verdict == "podsettle would change the next pod of this workload."
    assert [(each.count, each.state, each.examples) for each in found.pods] == [
        (2, "a is fine.", ["web-0", "web-2"]),
        (1, "podsettle did not change this pod.", ["web-1"]),
        (
            1,
            "The annotations say that podsettle changed this pod when it was created, but the pod "
            "shows no sign of postInitSleep. They may be those of another pod.",
            ["web-3"],
        ),
        (
            1,
            "This pod has podsettle's changes, but not its annotations (it may be a copy).",
            ["web-4"],
        ),
    ]
    assert "  2 (such as web-0): a is fine.\n" in as_text(found)


def test_verdict_says_that_manifests_contain_no_policy() -> None:
    found = explain(WRITTEN, known=KnownCluster(view(namespaces=[namespace("ci")])))
    assert found.verdict == (
        "podsettle would not change the next pod of this workload: "
        "the manifests contain no valid policy."
    )


def test_pods_of_a_workload_of_another_group_are_not_counted() -> None:
    other = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "web"}
    metadata = {"name": "other", "namespace": "ci", "ownerReferences": [other]}
    found = explain(
        WRITTEN, known=cluster(), kind="Job", others=[{**WRITTEN, "metadata": metadata}]
    )
    assert [(each.count, each.examples) for each in found.pods] == [(1, ["web-0"])]


def test_pods_that_lack_remedies_are_counted_with_the_command_that_replaces_them() -> None:
    gate = policy("gate", remedies={"kubeletGate": {}})
    found = lacking(explain(SETTLED, WRITTEN, WRITTEN, known=cluster()))
    assert (found.pods, found.certainty) == (2, "likely")  # The manifests have no node.
    assert found.advice == "kubectl -n ci rollout restart statefulset/web"
    assert lacking(explain(SETTLED, WRITTEN, WRITTEN, known=cluster(TEKTON, gate))).pods == 3
    settled = explain(SETTLED, known=cluster())
    assert "not-settled" not in [each.symptom for each in settled.symptoms]
    of_job = lacking(explain(WRITTEN, known=cluster(), kind="Job"))
    assert of_job.advice == "The next pod of Job/web is settled when it is created."


def test_commands_use_the_cluster_that_the_flags_choose() -> None:
    flags = ClusterFlags("kc b", "prod")
    chosen = "'--kubeconfig=kc b' --context=prod"
    found = explain(WRITTEN, known=cluster(flags=flags, calls=WebhookCalls()))
    assert f"`podsettle doctor {chosen}` checks the installation." in found.notes[0]
    found = explain(WRITTEN, known=cluster(flags=flags, calls=WebhookCalls(readable=False)))
    assert lacking(found).advice == f"kubectl {chosen} -n ci rollout restart statefulset/web"
    (unknown,) = (each for each in found.unknown if each.right)
    assert unknown.command.startswith(f"kubectl {chosen} auth can-i list ")


def test_number_of_groups_is_bounded() -> None:
    different = [pod(annotations={"podsettle.dev/summary": f"pod {index}."}) for index in range(50)]
    groups = explain(*different, *different, known=cluster()).pods
    assert len(groups) == 21
    assert sum(group.count for group in groups) == 100
    assert all(len(group.examples) <= 3 for group in groups)


@pytest.mark.parametrize(
    ("known", "called", "verdict"),
    [
        (
            {"calls": WebhookCalls()},
            "False",
            "podsettle would not change the next pod of this workload, because the API server does "
            "not call podsettle for it.",
        ),
        (
            {"calls": WebhookCalls(readable=False)},
            "Unknown",
            "podsettle would change the next pod of this workload if the API server calls "
            "podsettle for it.",
        ),
        ({"calls": CALLING}, "True", "podsettle would change the next pod of this workload."),
        (
            {"settings": OperatorSettings(None, IMAGE, "https://e/\x1b[31m")},
            None,
            "What podsettle would do to the next pod of this workload is not known: InternalError",
        ),
    ],
)
def test_verdict_depends_on_the_webhook_configuration_and_on_a_decision(
    known: dict[str, Any], called: str | None, verdict: str
) -> None:
    found = explain(WRITTEN, known=replace(cluster(), **known))
    assert found.called == called
    assert found.verdict.startswith(verdict)
    note = "The API server does not call podsettle for such a pod: "
    assert any(each.startswith(note) for each in found.notes) == (called == "False")


def test_workload_is_told_that_it_has_no_pod_and_that_a_policy_selects_no_container() -> None:
    regular = policy("regular", remedies={"postInitSleep": {"initContainers": ["x"]}})
    assert explain(known=cluster(regular)).notes == []  # The manifests have no pods at all.
    found = explain(known=cluster(regular), others=[pod()])
    assert found.notes == ["No pod of this workload was found."]
    assert (
        "  NoContainerSelected postInitSleep: selects none of the pod's containers (init "
        "containers: a; containers: main) (by regular)\n"
    ) in as_text(found)
    assert found.nodes == []


def test_cron_job_has_the_pods_of_its_scheduled_jobs() -> None:
    def of_job(job: str) -> Json:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "controller": True}
        metadata = {"name": f"{job}-a", "namespace": "ci", "ownerReferences": [owner]}
        return {**WRITTEN, "metadata": metadata}

    spec = {"jobTemplate": {"spec": {"template": {"spec": WRITTEN["spec"]}}}}
    cron_job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "ci"},
        "spec": spec,
    }
    pods = [of_job("nightly-29000000"), of_job("nightly-manual"), of_job("nightly-x-29000000")]
    found = explained("cronjob/nightly", cluster(), cron_job, *pods)
    assert [each.examples for each in found.pods] == [["nightly-29000000-a"]]
