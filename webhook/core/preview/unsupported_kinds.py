"""Advice on previews for objects whose pods podsettle cannot derive from the object."""

from __future__ import annotations

from webhook.core.constants import OBJECT_NAME

_TEKTON, _ARGO, _BUILD, _KNATIVE = (
    "tekton.dev",
    "argoproj.io",
    "build.openshift.io",
    "serving.knative.dev",
)
# By group and kind: the system that creates the pods, a label of the pods, and its value. An empty
# value stands for the object's name. A value in capitals is for the user to replace. Sources:
# tektoncd/pipeline pkg/apis/pipeline/register.go, argo-workflows workflow/common/common.go,
# openshift/api build/v1/consts.go, knative/serving pkg/apis/serving/register.go.
_POD_LABELS: dict[tuple[str, str], tuple[str, str, str]] = {
    (_TEKTON, "TaskRun"): ("Tekton", "tekton.dev/taskRun", ""),
    (_TEKTON, "PipelineRun"): ("Tekton", "tekton.dev/pipelineRun", ""),
    (_TEKTON, "Task"): ("Tekton", "tekton.dev/task", ""),
    (_TEKTON, "ClusterTask"): ("Tekton", "tekton.dev/clusterTask", ""),
    (_TEKTON, "Pipeline"): ("Tekton", "tekton.dev/pipeline", ""),
    (_ARGO, "Workflow"): ("Argo", "workflows.argoproj.io/workflow", ""),
    (_ARGO, "CronWorkflow"): ("Argo", "workflows.argoproj.io/workflow", "WORKFLOW"),
    (_ARGO, "WorkflowTemplate"): ("Argo", "workflows.argoproj.io/workflow", "WORKFLOW"),
    (_ARGO, "ClusterWorkflowTemplate"): ("Argo", "workflows.argoproj.io/workflow", "WORKFLOW"),
    (_BUILD, "Build"): ("OpenShift", "openshift.io/build.name", ""),
    (_BUILD, "BuildConfig"): ("OpenShift", "openshift.io/build.name", "BUILD"),
    (_KNATIVE, "Service"): ("Knative", "serving.knative.dev/service", ""),
    (_KNATIVE, "Configuration"): ("Knative", "serving.knative.dev/configuration", ""),
    (_KNATIVE, "Revision"): ("Knative", "serving.knative.dev/revision", ""),
}
_PROCESS_TEMPLATE = "preview its output: oc process -f FILE -o yaml | podsettle preview -"
# By group and kind: the advice for other objects.
_ALTERNATIVES: dict[tuple[str, str], str] = {
    ("template.openshift.io", "Template"): _PROCESS_TEMPLATE,
    ("", "Template"): _PROCESS_TEMPLATE,
    ("kustomize.config.k8s.io", "Kustomization"): "preview its output: kubectl kustomize DIR | "
    "podsettle preview -",
}


def alternative_to(group: str, kind: str, name: str, namespace: str) -> str | None:
    """Return what to preview instead of an object, or None if podsettle knows no alternative.

    podsettle knows one for kinds whose pods another system creates, and for templates that another
    program renders.
    """
    if (group, kind) in _ALTERNATIVES:
        return _ALTERNATIVES[group, kind]
    if (group, kind) not in _POD_LABELS:
        return None
    system, label, fixed_value = _POD_LABELS[group, kind]
    value = fixed_value or (name if OBJECT_NAME.fullmatch(name) else "NAME")
    namespace_option = f" -n {namespace}" if OBJECT_NAME.fullmatch(namespace) else ""
    return (
        f"{system} creates the pods of {with_article(kind)}; preview one of them: "
        f"kubectl get pod{namespace_option} -l {label}={value} -o yaml"
    )


def pods_selector(group: str, kind: str, name: str) -> str:
    """Return the label selector of the pods that another system creates for an object.

    The result is empty if podsettle does not know the system, or if the object's name is not the
    value of the label.
    """
    _, label, fixed_value = _POD_LABELS.get((group, kind), ("", "", ""))
    return f"{label}={name}" if label and not fixed_value and OBJECT_NAME.fullmatch(name) else ""


def with_article(kind: str) -> str:
    """Return a kind with its indefinite article, such as `an Event`."""
    return f"{'an' if kind[:1] in 'AEIOaeio' else 'a'} {kind}"
