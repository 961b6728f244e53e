from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.preview.workloads import PassedOver, Workload, pods_of

SPEC = {"containers": [{"name": "main"}], "unknown": [1]}
TEMPLATE = {"metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}}, "spec": SPEC}


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns"}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


def one(document: object, template_path: str | None = None) -> Workload:
    (found,) = pods_of(document, template_path)
    assert isinstance(found, Workload), found
    return found


def pods(document: object, template_path: str | None = None) -> list[Workload]:
    found = list(pods_of(document, template_path))
    assert all(isinstance(each, Workload) for each in found), found
    return [each for each in found if isinstance(each, Workload)]


def passed_over(document: object, template_path: str | None = None) -> PassedOver:
    (found,) = pods_of(document, template_path)
    assert isinstance(found, PassedOver), found
    return found


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


NO_KIND = (
    " has no kind, so it is not a Kubernetes object; for a Helm chart or a Kustomize overlay, "
    "preview the output of helm template or kubectl kustomize"
)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "the document is not a Kubernetes object"),
        ([], "the document is not a Kubernetes object"),
        ({}, f"the document{NO_KIND}"),
        ({"kind": 5}, f"the document{NO_KIND}"),
        ({"kind": ""}, f"the document{NO_KIND}"),
        ({"kind": "Pod"}, "spec of this Pod is missing or not a mapping"),
        ({"kind": "Pod", "spec": []}, "spec of this Pod is missing or not a mapping"),
        ({"kind": "Job"}, "spec of this Job is missing or not a mapping"),
        (workload("Job"), "spec.template of this Job is missing or not a mapping"),
        (
            workload("CronJob", jobTemplate={"spec": 5}),
            "spec.jobTemplate.spec of this CronJob is missing or not a mapping",
        ),
        (
            workload("Deployment", template={}),
            "spec.template.spec of this Deployment is missing or not a mapping",
        ),
        ({"kind": "List", "items": [5]}, "items[0] is not a Kubernetes object"),
        ({"kind": "List", "items": [{}]}, f"items[0]{NO_KIND}"),
        ({"kind": "List", "items": {}}, "items of this List is not a list"),
        (
            {"kind": "List", "items": [workload("Job")]},
            "items[0].spec.template of this Job is missing or not a mapping",
        ),
        (
            {"kind": "PodList", "items": [{}]},
            "items[0].spec of this Pod is missing or not a mapping",
        ),
    ],
)
def test_unreadable_object_is_reported_with_its_path(document: Any, message: str) -> None:
    found = passed_over(document)
    assert (found.message, found.malformed) == (message, True)


def custom(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


UNKNOWN = "podsettle does not know where a {} keeps its pod template; give the template path, "


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (workload("Service"), "a Service holds no pod"),
        (workload("ConfigMap"), "a ConfigMap holds no pod"),
        (custom("networking.k8s.io/v1", "Ingress"), "an Ingress holds no pod"),
        (
            custom("tekton.dev/v1", "TaskRun"),
            "Tekton creates the pods of a TaskRun; preview one of them: "
            "kubectl get pod -n ns -l tekton.dev/taskRun=w -o yaml",
        ),
        (
            custom("tekton.dev/v1beta1", "PipelineRun"),
            "Tekton creates the pods of a PipelineRun; preview one of them: "
            "kubectl get pod -n ns -l tekton.dev/pipelineRun=w -o yaml",
        ),
        (
            custom("argoproj.io/v1alpha1", "Workflow"),
            "Argo creates the pods of a Workflow; preview one of them: "
            "kubectl get pod -n ns -l workflows.argoproj.io/workflow=w -o yaml",
        ),
        (
            custom("argoproj.io/v1alpha1", "CronWorkflow"),
            "Argo creates the pods of a CronWorkflow; preview one of them: "
            "kubectl get pod -n ns -l workflows.argoproj.io/workflow=WORKFLOW -o yaml",
        ),
        (
            custom("podsettle.dev/v1alpha1", "SettlePolicy"),
            "a policy, not a pod: podsettle check FILE validates it, and preview reads policies "
            "from the directory of --manifests",
        ),
        (
            custom("v1", "Template"),
            "preview its output: oc process -f FILE -o yaml | podsettle preview -",
        ),
        (
            custom("example.com/v1", "Fleet"),
            UNKNOWN.format("Fleet") + "if it has one, such as spec.template",
        ),
        # A kind of another group with the name of a built-in kind.
        (
            custom("batch.volcano.sh/v1", "Job", spec={}),
            UNKNOWN.format("Job") + "if it has one, such as spec.template",
        ),
    ],
)
def test_object_without_a_pod_is_reported_with_an_alternative(document: Any, message: str) -> None:
    found = passed_over(document)
    assert (found.kind, found.name, found.namespace) == (document["kind"], "w", "ns")
    assert (found.message, found.malformed) == (message, False)


@pytest.mark.parametrize("name", ["a; rm -rf /", "$(id)", "x" * 300, "a\nb", ""])
def test_suggested_command_contains_only_names_that_are_safe_in_a_shell(name: str) -> None:
    run = custom("tekton.dev/v1", "TaskRun") | {"metadata": {"name": name, "namespace": name}}
    assert passed_over(run).message.endswith("kubectl get pod -l tekton.dev/taskRun=NAME -o yaml")


def test_items_after_an_object_without_a_pod_are_found() -> None:
    items = [workload("Service"), workload("Job", template=TEMPLATE), {}, workload("Pod")]
    items[3]["spec"] = SPEC
    found = list(pods_of({"kind": "List", "items": items}))
    assert [(type(each), each.kind) for each in found] == [
        (PassedOver, "Service"),
        (Workload, "Job"),
        (PassedOver, ""),
        (Workload, "Pod"),
    ]
    assert [each.steps for each in found if isinstance(each, PassedOver)] == [
        ("items", 0),
        ("items", 2),
    ]


def test_openshift_deployment_config_yields_its_pod() -> None:
    found = one(custom("apps.openshift.io/v1", "DeploymentConfig", spec={"template": TEMPLATE}))
    assert (found.kind, found.path) == ("DeploymentConfig", "spec.template")


SCALED_JOB = custom("keda.sh/v1", "ScaledJob", spec={"jobTargetRef": {"template": TEMPLATE}})


def test_custom_object_with_a_pod_template_is_unreadable_without_its_path() -> None:
    found = passed_over(SCALED_JOB)
    assert found.message == UNKNOWN.format("ScaledJob") + "which may be spec.jobTargetRef.template"
    assert found.malformed
    found = passed_over(SCALED_JOB, "spec.workers.template")
    assert found.message == (
        "spec.workers of this ScaledJob is missing or not a mapping; the template path may be "
        "spec.jobTargetRef.template"
    )
    assert found.malformed


@pytest.mark.parametrize(
    ("held", "path"),
    [
        ({"spec": {"tasks": [{"name": "w", "template": TEMPLATE}]}}, "spec.tasks[0].template"),
        (
            {"spec": {"replicatedJobs": [{"template": {"spec": {"template": TEMPLATE}}}]}},
            "spec.replicatedJobs[0].template.spec.template",
        ),
        ({"spec": {"my-workers": {"template": TEMPLATE}}}, "spec.my-workers.template"),
    ],
)
def test_object_with_a_pod_template_beyond_any_path_is_unreadable(
    held: dict[str, Any], path: str
) -> None:
    found = passed_over(custom("batch.volcano.sh/v1alpha1", "Job", **held))
    assert found.message == (
        f"podsettle does not know where a Job keeps its pod template; {path} has the shape of one, "
        "but no template path can lead there: preview a pod that was created from it: "
        "kubectl get pod NAME -o yaml"
    )
    assert found.malformed


@pytest.mark.parametrize(
    "held",
    [
        {"status": {"template": TEMPLATE}},
        {"metadata": {"last": {"template": TEMPLATE}}},
        {"spec": {"template": {"spec": {"containers": []}}}},
    ],
)
def test_object_without_a_pod_template_is_not_unreadable(held: dict[str, Any]) -> None:
    found = passed_over(custom("example.com/v1", "Fleet") | held)
    assert not found.malformed


def test_template_path_of_another_kind_does_not_make_an_object_unreadable() -> None:
    found = passed_over(custom("example.com/v1", "Fleet", spec={}), "spec.workers.template")
    assert found.message == "spec.workers of this Fleet is missing or not a mapping"
    assert not found.malformed


def test_template_path_does_not_make_a_service_unreadable() -> None:
    assert not passed_over(workload("Service"), "spec.workers.template").malformed
    assert not passed_over(custom("tekton.dev/v1", "TaskRun"), "spec.workers.template").malformed


@pytest.mark.parametrize(
    "document",
    [
        workload("Job", template={"metadata": {"labels": ["a"]}, "spec": SPEC}),
        workload("Job", template={"metadata": {"labels": "a"}, "spec": SPEC}),
        workload(
            "StatefulSet",
            template={"spec": {"volumes": ["a"]}},
            volumeClaimTemplates=[{"metadata": {"name": "a"}}],
        ),
        workload("StatefulSet", template={"spec": {"volumes": 5}}, volumeClaimTemplates=[]),
    ],
)
def test_malformed_template_raises_nothing(document: Any) -> None:
    list(pods_of(document))


LEAVES = st.none() | st.booleans() | st.integers() | st.text("ab", max_size=2)
KEYS = st.sampled_from(
    ["kind", "metadata", "spec", "items", "template", "jobTemplate", "labels", "name", "volumes",
     "volumeClaimTemplates"]
)  # fmt: skip
KINDS = st.sampled_from(
    ["Pod", "Job", "CronJob", "StatefulSet", "List", "PodList", "PodTemplate", "Odd"]
)
JUNK = st.recursive(
    LEAVES | KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(kind=KINDS, fields=st.dictionaries(KEYS, JUNK, max_size=4))
def test_any_document_raises_nothing(kind: str, fields: dict[str, Any]) -> None:
    list(pods_of({**fields, "kind": kind}))
