"""The pods that a workload would create: every object that holds a pod template.

A controller adds to its template before the API server sees the pod. What a policy may look at is
added here as well: the labels of a Job's and a StatefulSet's pods, and the volumes that a
StatefulSet makes of its claim templates.

An object without a pod is reported as well, with what to preview instead: lists such as those of
`kubectl get all` hold Services and ConfigMaps beside the workloads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from webhook.core.policy.errors import json_path
from webhook.core.preview.alternatives import alternative_to, with_article
from webhook.core.preview.controller_fields import add_controller_fields, fill_in_nulls

Steps: TypeAlias = tuple[str | int, ...]
"""Keys and indices from a document down to a value."""

_TEMPLATE_PATHS: dict[str, tuple[str, ...]] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
    "DeploymentConfig": ("spec", "template"),
}

KINDS = (*_TEMPLATE_PATHS, "List")
"""The kinds whose pods podsettle finds without a template path."""

_DEPLOYMENT_CONFIG_GROUP = "apps.openshift.io"


@dataclass(frozen=True, slots=True)
class Workload:
    """One pod that an object is or would create."""

    kind: str
    name: str
    namespace: str | None
    path: str
    """Where the pod was found in its document, such as `items[2].spec.template`."""
    pod: dict[str, Any]

    @property
    def title(self) -> str:
        """`CronJob/nightly`, for people."""
        return f"{self.kind}/{self.name or '(unnamed)'}"


@dataclass(frozen=True, slots=True)
class PassedOver:
    """An object that no pod can be shown of."""

    kind: str
    """Empty where the object has none."""
    name: str
    namespace: str | None
    steps: Steps
    """Where the object stands in its document."""
    message: str
    """Why there is no pod, and what to preview instead."""
    malformed: bool
    """Whether the object cannot be read: it has no kind, no pod template where one belongs, or one
    that podsettle does not know the path to."""


def pods_of(document: object, template_path: str | None = None) -> Iterator[Workload | PassedOver]:
    """Every pod in a document, and every object of it that has none, in their order.

    `template_path` says where a kind that podsettle does not know keeps its pod template, such as
    `spec.workers.template`. Raises nothing.
    """
    return _find_pods(document, template_path, ())


def _find_pods(
    document: object, template_path: str | None, at: Steps
) -> Iterator[Workload | PassedOver]:
    if not isinstance(document, Mapping):
        yield PassedOver("", "", None, at, f"{_subject(at)} is not a Kubernetes object", True)
        return
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        message = (
            f"{_subject(at)} has no kind, so it is not a Kubernetes object; of a Helm chart or a "
            "Kustomize overlay, preview the output of helm template or kubectl kustomize"
        )
        yield PassedOver("", _name_of(document), _namespace_of(document), at, message, True)
        return
    if kind == "List" or (kind.endswith("List") and isinstance(document.get("items"), list)):
        yield from _find_pods_in_list(document, kind, template_path, at)
        return
    yield _find_pod(document, kind, template_path, at)


def _find_pods_in_list(
    document: Mapping[str, Any], kind: str, template_path: str | None, at: Steps
) -> Iterator[Workload | PassedOver]:
    items = document.get("items")
    if not isinstance(items, list | None):
        message = f"{json_path((*at, 'items'))} of this List is not a list"
        yield PassedOver(kind, "", None, at, message, True)
        return
    inner_kind = kind.removesuffix("List")
    for index, item in enumerate(items or ()):
        if isinstance(item, Mapping) and inner_kind and "kind" not in item:
            # Items of a typed list, such as a PodList, leave out what they are.
            item = {"apiVersion": document.get("apiVersion"), "kind": inner_kind, **item}
        yield from _find_pods(item, template_path, (*at, "items", index))


def _find_pod(
    document: Mapping[str, Any], kind: str, template_path: str | None, at: Steps
) -> Workload | PassedOver:
    """The pod of one object that is no list."""
    group = str(document.get("apiVersion") or "").rpartition("/")[0]
    built_in = "." not in group or group.endswith(".k8s.io")

    def passed_over(message: str, malformed: bool = False) -> PassedOver:
        name, namespace = _name_of(document), _namespace_of(document)
        return PassedOver(kind, name, namespace, at, message, malformed)

    alternative = alternative_to(group, kind, _name_of(document), _namespace_of(document) or "")
    if alternative is not None:
        return passed_over(alternative)
    steps: tuple[str, ...] | None = None
    if built_in or group == _DEPLOYMENT_CONFIG_GROUP:
        steps = _TEMPLATE_PATHS.get(kind)
    if steps is None:
        if template_path is not None:
            steps = tuple(template_path.split("."))
        if built_in and (steps is None or _first_missing(document, steps)):
            return passed_over(f"{with_article(kind)} holds no pod")
        if steps is None or (not built_in and _first_missing(document, (*steps, "spec"))):
            # A template path is for one kind: another, such as a Certificate, may hold no pod.
            held = _find_template(document)
            message = _no_template_message(document, kind, at, steps, held)
            return passed_over(message, malformed=held is not None)
    missing = _first_missing(document, (*steps, "spec"))
    if missing:
        return passed_over(_missing_message(missing, kind, at), malformed=True)
    if steps:
        template: Any = document
        for step in steps:
            template = template[step]
        pod = _from_template(template)
    else:
        pod = dict(document)
    return _workload(document, kind, (*at, *steps), pod)


def _missing_message(steps: Steps, kind: str, at: Steps) -> str:
    return f"{json_path((*at, *steps))} of this {kind} is missing or not a mapping"


def _no_template_message(
    document: Mapping[str, Any],
    kind: str,
    at: Steps,
    steps: tuple[str, ...] | None,
    template: Steps | None,
) -> str:
    """Why no pod is shown of a kind that podsettle does not know; `template` is where one is."""
    missing = None
    if steps is not None:
        missing = _missing_message(_first_missing(document, (*steps, "spec")), kind, at)
    unknown = f"podsettle does not know where {with_article(kind)} keeps its pod template"
    if template is None:
        return missing or f"{unknown}; give the template path, if it has one, such as spec.template"
    path = json_path(template)
    if not all(isinstance(step, str) and _KEY.fullmatch(step) for step in template):
        return (
            f"{missing or unknown}; {path} looks like one, where no template path leads to: "
            "preview a pod that is made of it: kubectl get pod NAME -o yaml"
        )
    if missing:
        return f"{missing}; the template path may be {path}"
    return f"{unknown}; give the template path, it may be {path}"


def _find_template(document: Mapping[str, Any]) -> Steps | None:
    """Where an object holds what has the shape of a pod template, the nearest; None: nowhere.

    Takes time in proportion to the object.
    """
    rest: list[tuple[Steps, Any]] = [
        ((key,), inner) for key, inner in document.items() if key not in ("metadata", "status")
    ]
    for steps, value in rest:
        if isinstance(value, Mapping):
            spec = value.get("spec")
            containers = spec.get("containers") if isinstance(spec, Mapping) else None
            if isinstance(containers, list) and containers:
                return steps
        elif not isinstance(value, list):
            continue
        if len(steps) < _MAX_TEMPLATE_DEPTH:
            inners = value.items() if isinstance(value, Mapping) else enumerate(value)
            rest += [((*steps, step), inner) for step, inner in inners]
    return None


_KEY = re.compile("[A-Za-z0-9]{1,63}")
"""Keys that a template path may have: none with a dot."""
_MAX_TEMPLATE_DEPTH = 10
"""Keys and indices above a template that is searched for. Custom resources have up to seven."""


def _first_missing(document: Mapping[str, Any], steps: Steps) -> Steps:
    """The path to the first value that is not a mapping; empty where all are."""
    found: Any = document
    for count, step in enumerate(steps, 1):
        found = found.get(step)
        if not isinstance(found, Mapping):
            return steps[:count]
    return ()


def _subject(at: Steps) -> str:
    return json_path(at) or "the document"


def _metadata_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _name_of(document: Mapping[str, Any]) -> str:
    metadata = _metadata_of(document)
    return str(metadata.get("name") or metadata.get("generateName") or "")


def _namespace_of(document: Mapping[str, Any]) -> str | None:
    namespace = _metadata_of(document).get("namespace")
    return namespace if isinstance(namespace, str) else None


def _from_template(template: Mapping[str, Any]) -> dict[str, Any]:
    metadata = template.get("metadata")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": dict(metadata) if isinstance(metadata, Mapping) else {},
        "spec": template.get("spec"),
    }


def _workload(document: Mapping[str, Any], kind: str, at: Steps, pod: dict[str, Any]) -> Workload:
    fill_in_nulls(pod)
    name = _name_of(document)
    add_controller_fields(document, kind, name, pod)
    return Workload(kind, name, _namespace_of(document), json_path(at), pod)
