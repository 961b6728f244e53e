from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.support.workloads import SPEC, TEMPLATE, one, pods, workload
from webhook.core.preview.document import Document
from webhook.core.preview.pods_in_document import pods_of


def job(kind: str, **spec: Any) -> dict[str, Any]:
    """A Job or CronJob with these fields in the spec of the Job."""
    spec = {**spec, "template": copy.deepcopy(TEMPLATE)}
    return workload(kind, **(spec if kind == "Job" else {"jobTemplate": {"spec": spec}}))


def labels_of(document: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = one(document).pod["metadata"]["labels"]
    return labels


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "ReplicaSet", "ReplicationController"])
def test_controller_yields_the_pod_of_its_template(kind: str) -> None:
    found = one(workload(kind, template=TEMPLATE))
    assert (found.kind, found.name, found.namespace) == (kind, "w", "ns")
    assert found.path == "spec.template"
    assert found.title == f"{kind}/w"
    assert found.pod == {"apiVersion": "v1", "kind": "Pod", **TEMPLATE}


def test_cron_job_pods_carry_the_labels_of_its_jobs() -> None:
    found = one(workload("CronJob", jobTemplate={"spec": {"template": {"spec": SPEC}}}))
    assert found.path == "spec.jobTemplate.spec.template"
    labels = found.pod["metadata"]["labels"]
    assert labels.keys() == {"batch.kubernetes.io/job-name", "job-name"}
    assert labels["job-name"].startswith("w-")


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_pods_of_indexed_jobs_carry_an_index(kind: str) -> None:
    assert "batch.kubernetes.io/job-completion-index" not in labels_of(job(kind))
    indexed = labels_of(job(kind, completionMode="Indexed"))
    assert indexed["batch.kubernetes.io/job-completion-index"] == "0"


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_job_with_a_manual_selector_adds_no_labels(kind: str) -> None:
    found = one(job(kind, manualSelector=True))
    for pod in (found.pod, found.created_pod):
        assert pod["metadata"]["labels"] == {"app": "x"}
    assert "job-name" in labels_of(job(kind, manualSelector=False))


@pytest.mark.parametrize(
    ("kind", "owner", "generated"),
    [
        ("Deployment", "ReplicaSet", {"pod-template-hash"}),
        ("ReplicaSet", "ReplicaSet", set()),
        ("ReplicationController", "ReplicationController", set()),
        ("DeploymentConfig", "ReplicationController", set()),
        ("StatefulSet", "StatefulSet", {"controller-revision-hash"}),
        ("DaemonSet", "DaemonSet", {"controller-revision-hash", "pod-template-generation"}),
        ("Job", "Job", {"controller-uid", "batch.kubernetes.io/controller-uid"}),
        ("CronJob", "Job", {"controller-uid", "batch.kubernetes.io/controller-uid"}),
    ],
)
def test_created_pod_has_its_owner_and_the_generated_labels(
    kind: str, owner: str, generated: set[str]
) -> None:
    template = copy.deepcopy(TEMPLATE)
    document = job(kind) if "Job" in kind else workload(kind, template=template)
    found = one(document)
    created, shown = found.created_pod["metadata"], found.pod["metadata"]
    (reference,) = created["ownerReferences"]
    assert (reference["kind"], reference["controller"]) == (owner, True)
    assert created["labels"].keys() - shown["labels"].keys() == generated
    assert shown.keys() == {"labels", "annotations"}
    assert found.created_pod["spec"] is found.pod["spec"]


@pytest.mark.parametrize("kind", ["Pod", "PodTemplate", "Workflow"])
def test_pod_without_a_known_controller_is_created_as_it_is(kind: str) -> None:
    owner = [{"kind": "DaemonSet"}]
    template = {"metadata": {"ownerReferences": owner}, "spec": SPEC}
    document = {"kind": kind, "metadata": {}, "template": template}
    found = one(template | {"kind": "Pod"} if kind == "Pod" else document, "template")
    assert found.created_pod is found.pod
    assert found.pod["metadata"]["ownerReferences"] == owner


@pytest.mark.parametrize(
    ("ordinals", "first"),
    [
        ({"start": 3}, "3"),
        ({"start": 2**31 - 1}, str(2**31 - 1)),
        ({"start": -1}, "0"),
        ({"start": 10**5000}, "0"),
        ({"start": True}, "0"),
        ({"start": "3"}, "0"),
        ({}, "0"),
        ("3", "0"),
    ],
)
def test_first_pod_of_a_stateful_set_has_the_start_ordinal(ordinals: Any, first: str) -> None:
    claims = [{"metadata": {"name": "data"}}]
    found = one(
        workload(
            "StatefulSet",
            template=copy.deepcopy(TEMPLATE),
            ordinals=ordinals,
            volumeClaimTemplates=claims,
        )
    )
    labels = found.pod["metadata"]["labels"]
    assert labels["apps.kubernetes.io/pod-index"] == first
    assert labels["statefulset.kubernetes.io/pod-name"] == f"w-{first}"
    (volume,) = found.pod["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": f"data-w-{first}"}


def test_stateful_set_pods_carry_its_labels_and_claims() -> None:
    template: dict[str, Any] = copy.deepcopy(TEMPLATE)
    template["spec"]["volumes"] = [
        {"name": "data", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    claims = [{"metadata": {"name": "data"}}, {"metadata": {"name": "log"}}, {"metadata": {}}, None]
    found = one(workload("StatefulSet", template=template, volumeClaimTemplates=claims))
    assert found.pod["metadata"]["labels"] == {
        "app": "x",
        "apps.kubernetes.io/pod-index": "0",
        "statefulset.kubernetes.io/pod-name": "w-0",
    }
    # A claim replaces a volume with its name, as the controller does it.
    assert found.pod["spec"]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-w-0"}},
        {"name": "log", "persistentVolumeClaim": {"claimName": "log-w-0"}},
        {"name": "tmp", "emptyDir": {}},
    ]


def test_document_is_not_modified() -> None:
    claims = [{"metadata": {"name": "data"}}]
    items = [
        workload("Job", template=TEMPLATE),
        workload("StatefulSet", template=TEMPLATE, volumeClaimTemplates=claims),
        {"kind": "Pod", "metadata": {"name": "p"}, "spec": SPEC},
    ]
    document = {"kind": "List", "items": items}
    before = copy.deepcopy(document)
    assert len(list(pods_of(Document(document)))) == 3
    assert document == before


def test_list_yields_the_pods_of_its_items() -> None:
    items = [workload("Deployment", template=TEMPLATE), workload("Pod") | {"spec": SPEC}]
    found = pods({"kind": "List", "items": [*items, {"kind": "List", "items": items[1:]}]})
    assert [f.path for f in found] == ["items[0].spec.template", "items[1]", "items[2].items[0]"]


def test_template_path_applies_only_to_unknown_kinds() -> None:
    items = [workload("Job", template=TEMPLATE), workload("Workflow", workers=TEMPLATE)]
    found = pods({"kind": "List", "items": items}, "spec.workers")
    assert [f.path for f in found] == ["items[0].spec.template", "items[1].spec.workers"]


@pytest.mark.parametrize(
    ("metadata", "name", "title"),
    [
        ({"generateName": "w-"}, "w-", "Pod/w-"),
        ({}, "", "Pod/(unnamed)"),
        (None, "", "Pod/(unnamed)"),
        ({"name": None}, "", "Pod/(unnamed)"),
    ],
)
def test_pod_without_a_name_is_found(metadata: Any, name: str, title: str) -> None:
    found = one({"kind": "Pod", "metadata": metadata, "spec": SPEC})
    assert (found.name, found.title, found.namespace) == (name, title, None)


def test_pods_of_a_deployment_config_carry_the_labels_of_its_rollout() -> None:
    labels = labels_of(workload("DeploymentConfig", template=TEMPLATE))
    assert labels == {"app": "x", "deploymentconfig": "w", "deployment": "w-1"}
