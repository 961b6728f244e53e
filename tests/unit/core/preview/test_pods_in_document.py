from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.preview.document import Document
from webhook.core.preview.pods_in_document import PassedOver, Workload, pods_of

SPEC = {"containers": [{"name": "main"}], "unknown": [1]}
TEMPLATE = {"metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}}, "spec": SPEC}


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns"}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


def one(document: object, template_path: str | None = None) -> Workload:
    (found,) = pods_of(Document(document), template_path)
    assert isinstance(found, Workload), found
    return found


def pods(document: object, template_path: str | None = None) -> list[Workload]:
    found = list(pods_of(Document(document), template_path))
    assert all(isinstance(each, Workload) for each in found), found
    return [each for each in found if isinstance(each, Workload)]


def passed_over(document: object, template_path: str | None = None) -> PassedOver:
    (found,) = pods_of(Document(document), template_path)
    assert isinstance(found, PassedOver), found
    return found


def custom(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


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
        ({"kind": "Pod"}, "spec of this Pod is missing or not a mapping"),
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
    assert (found.shown.message, found.malformed) == (message, True)


OF_ARGO = "workflows.argoproj.io/workflow"
UNKNOWN = "podsettle does not know where a {} keeps its pod template; give the template path, "


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (workload("Service"), "a Service holds no pod"),
        (custom("networking.k8s.io/v1", "Ingress"), "an Ingress holds no pod"),
        *(
            (
                custom(version, kind),
                f"{tool} creates the pods of a {kind}; preview one of them: "
                f"kubectl get pod -n ns -l {label} -o yaml",
            )
            for tool, version, kind, label in (
                ("Tekton", "tekton.dev/v1", "TaskRun", "tekton.dev/taskRun=w"),
                ("Tekton", "tekton.dev/v1beta1", "PipelineRun", "tekton.dev/pipelineRun=w"),
                ("Argo", "argoproj.io/v1alpha1", "Workflow", f"{OF_ARGO}=w"),
                ("Argo", "argoproj.io/v1alpha1", "CronWorkflow", f"{OF_ARGO}=WORKFLOW"),
            )
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
    assert (found.shown.kind, found.shown.name, found.shown.namespace) == (
        document["kind"],
        "w",
        "ns",
    )
    assert (found.shown.message, found.malformed) == (message, False)


@pytest.mark.parametrize("name", ["a; rm -rf /", "$(id)", "x" * 300, "a\nb", ""])
def test_suggested_command_contains_only_names_that_are_safe_in_a_shell(name: str) -> None:
    run = custom("tekton.dev/v1", "TaskRun") | {"metadata": {"name": name, "namespace": name}}
    assert passed_over(run).shown.message.endswith(
        "kubectl get pod -l tekton.dev/taskRun=NAME -o yaml"
    )


SCALED_JOB = custom("keda.sh/v1", "ScaledJob", spec={"jobTargetRef": {"template": TEMPLATE}})


def test_custom_object_with_a_pod_template_is_unreadable_without_its_path() -> None:
    found = passed_over(SCALED_JOB)
    assert (
        found.shown.message
        == UNKNOWN.format("ScaledJob") + "which may be spec.jobTargetRef.template"
    )
    assert found.malformed
    found = passed_over(SCALED_JOB, "spec.workers.template")
    assert found.shown.message == (
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
    assert found.shown.message == (
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
    list(pods_of(Document({**fields, "kind": kind})))
