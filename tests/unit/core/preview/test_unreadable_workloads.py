"""Tests of objects without a pod template, and of templates that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.workloads import TEMPLATE, custom, passed_over, workload
from webhook.core.preview.document import Document
from webhook.core.preview.pods_in_document import pods_of

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
