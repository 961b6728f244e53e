from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.support.workloads import SPEC, TEMPLATE, one, pods, workload
from webhook.core.preview.workloads import pods_of


def test_pod_is_its_own_workload() -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": SPEC,
        "status": {},
    }
    found = one(document)
    assert (found.kind, found.name, found.namespace, found.path) == ("Pod", "p", "ns", "")
    assert found.pod == document


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "ReplicaSet", "ReplicationController"])
def test_controller_yields_the_pod_of_its_template(kind: str) -> None:
    found = one(workload(kind, template=TEMPLATE))
    assert (found.kind, found.name, found.namespace) == (kind, "w", "ns")
    assert found.path == "spec.template"
    assert found.title == f"{kind}/w"
    assert found.pod == {"apiVersion": "v1", "kind": "Pod", **TEMPLATE}


def test_pod_template_yields_its_pod() -> None:
    found = one({"kind": "PodTemplate", "metadata": {"name": "w"}, "template": TEMPLATE})
    assert (found.path, found.namespace) == ("template", None)
    assert found.pod["spec"] == SPEC


def test_job_pods_carry_the_labels_of_the_job() -> None:
    found = one(workload("Job", template=TEMPLATE))
    assert found.pod["metadata"]["labels"] == {
        "app": "x",
        "batch.kubernetes.io/job-name": "w",
        "job-name": "w",
    }


def test_cron_job_pods_carry_the_labels_of_its_jobs() -> None:
    found = one(workload("CronJob", jobTemplate={"spec": {"template": {"spec": SPEC}}}))
    assert found.path == "spec.jobTemplate.spec.template"
    labels = found.pod["metadata"]["labels"]
    assert labels.keys() == {"batch.kubernetes.io/job-name", "job-name"}
    assert labels["job-name"].startswith("w-")


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


@pytest.mark.parametrize("claims", [None, [], "x"])
def test_stateful_set_without_claims_keeps_its_volumes(claims: Any) -> None:
    found = one(workload("StatefulSet", template=TEMPLATE, volumeClaimTemplates=claims))
    assert found.pod["spec"].get("volumes", []) == []


def test_document_is_not_modified() -> None:
    claims = [{"metadata": {"name": "data"}}]
    items = [
        workload("Job", template=TEMPLATE),
        workload("StatefulSet", template=TEMPLATE, volumeClaimTemplates=claims),
        {"kind": "Pod", "metadata": {"name": "p"}, "spec": SPEC},
    ]
    document = {"kind": "List", "items": items}
    before = copy.deepcopy(document)
    assert len(list(pods_of(document))) == 3
    assert document == before


def test_list_yields_the_pods_of_its_items() -> None:
    items = [workload("Deployment", template=TEMPLATE), workload("Pod") | {"spec": SPEC}]
    found = pods({"kind": "List", "items": [*items, {"kind": "List", "items": items[1:]}]})
    assert [f.path for f in found] == ["items[0].spec.template", "items[1]", "items[2].items[0]"]


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_items_of_a_typed_list_get_its_kind(kind: str) -> None:
    item = workload(kind, template=TEMPLATE) if kind != "Pod" else {"spec": SPEC}
    item.pop("kind", None)
    found = one({"kind": f"{kind}List", "items": [item]})
    assert found.kind == kind
    assert found.pod["spec"] == SPEC


@pytest.mark.parametrize("kind", ["List", "PodList"])
def test_empty_list_yields_nothing(kind: str) -> None:
    assert list(pods_of({"kind": kind, "items": []})) == []


def test_unknown_kind_is_read_by_its_template_path() -> None:
    document = workload("Workflow", workers={"template": TEMPLATE})
    found = one(document, "spec.workers.template")
    assert (found.kind, found.path) == ("Workflow", "spec.workers.template")
    assert found.pod == {"apiVersion": "v1", "kind": "Pod", **TEMPLATE}


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
