"""The pods that a workload would create: every object that holds a pod template.

A controller adds to its template before the API server sees the pod. What a policy may look at is
added here as well: the labels of a Job's and a StatefulSet's pods, and the volumes that a
StatefulSet makes of its claim templates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_TEMPLATE_PATHS = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
}

KINDS = ("Pod", *_TEMPLATE_PATHS, "List")
"""The kinds that hold pods without anybody having to say where."""


class WorkloadError(Exception):
    """An object that holds no pod where one was looked for."""


class NoPodError(WorkloadError):
    """An object of a kind that holds no pods, as far as podsettle knows: a Service, for example."""


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


def pods_of(document: object, template_path: str | None = None) -> Iterator[Workload]:
    """Every pod in a document.

    `template_path` says where a kind that podsettle does not know keeps its pod template, such as
    `spec.workers.template`. Raises WorkloadError.
    """
    return _pods_of(document, template_path, "")


def _pods_of(document: object, template_path: str | None, prefix: str) -> Iterator[Workload]:
    if not isinstance(document, Mapping):
        raise WorkloadError(f"{_at(prefix)}is not a Kubernetes object")
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise WorkloadError(f"{_at(prefix)}has no kind")
    if kind == "Pod":
        yield _workload(document, kind, prefix, dict(document))
        return
    if (kind == "List" or kind.endswith("List")) and isinstance(document.get("items"), list):
        inner_kind = kind.removesuffix("List")
        for index, item in enumerate(document["items"]):
            if isinstance(item, Mapping) and inner_kind and "kind" not in item:
                # Items of a typed list, such as a PodList, leave out their own kind.
                item = {"kind": inner_kind, **item}
            yield from _pods_of(item, template_path, _join(prefix, f"items[{index}]"))
        return
    steps = tuple(template_path.split(".")) if template_path else _TEMPLATE_PATHS.get(kind)
    if kind in _TEMPLATE_PATHS:
        steps = _TEMPLATE_PATHS[kind]
    if steps is None:
        raise NoPodError(
            f"{_at(prefix)}is a {kind}, and podsettle does not know where it keeps its pod "
            f"template; give the path, such as spec.template. Known: {', '.join(KINDS)}"
        )
    template = _follow(document, steps, prefix, kind)
    yield _workload(document, kind, _join(prefix, ".".join(steps)), _from_template(template))


def _follow(
    document: Mapping[str, Any], steps: tuple[str, ...], prefix: str, kind: str
) -> Mapping[str, Any]:
    found: Mapping[str, Any] = document
    for count, step in enumerate(steps, 1):
        inner = found.get(step)
        if not isinstance(inner, Mapping):
            path = _join(prefix, ".".join(steps[:count]))
            raise WorkloadError(f"{path} of this {kind} is missing or not a mapping")
        found = inner
    return found


def _from_template(template: Mapping[str, Any]) -> dict[str, Any]:
    metadata = template.get("metadata")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": dict(metadata) if isinstance(metadata, Mapping) else {},
        "spec": template.get("spec"),
    }


def _workload(document: Mapping[str, Any], kind: str, path: str, pod: dict[str, Any]) -> Workload:
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    spec = pod.get("spec")
    if not isinstance(spec, Mapping):
        raise WorkloadError(f"{_join(path, 'spec')} of this {kind} is missing or not a mapping")
    _fill_in_nulls(pod)
    name = metadata.get("name") or metadata.get("generateName") or ""
    namespace = metadata.get("namespace")
    _complete(document, kind, str(name), pod)
    return Workload(kind, str(name), namespace if isinstance(namespace, str) else None, path, pod)


def _complete(document: Mapping[str, Any], kind: str, name: str, pod: dict[str, Any]) -> None:
    """Add what the controller would add and a policy may look at."""
    if kind == "Job":
        # kubernetes pkg/controller/job/job_controller.go
        _label(pod, {"batch.kubernetes.io/job-name": name, "job-name": name})
    elif kind == "CronJob":
        job = f"{name}-0"
        _label(pod, {"batch.kubernetes.io/job-name": job, "job-name": job})
    elif kind == "StatefulSet":
        # kubernetes pkg/controller/statefulset/stateful_set_utils.go
        _label(
            pod,
            {
                "apps.kubernetes.io/pod-index": "0",
                "statefulset.kubernetes.io/pod-name": f"{name}-0",
            },
        )
        _claim_volumes(document, name, pod)


def _fill_in_nulls(pod: dict[str, Any]) -> None:
    """A label or annotation without a value is an empty one to the API server."""
    metadata = pod.get("metadata")
    if isinstance(metadata, Mapping):
        pod["metadata"] = metadata = dict(metadata)
        for key in ("labels", "annotations"):
            if isinstance(metadata.get(key), Mapping):
                metadata[key] = {k: "" if v is None else v for k, v in metadata[key].items()}


def _label(pod: dict[str, Any], labels: Mapping[str, str]) -> None:
    known = pod["metadata"].get("labels") or {}
    if isinstance(known, Mapping):
        pod["metadata"]["labels"] = {**known, **labels}


def _claim_volumes(document: Mapping[str, Any], name: str, pod: dict[str, Any]) -> None:
    spec = document.get("spec")
    templates = spec.get("volumeClaimTemplates") if isinstance(spec, Mapping) else None
    if not isinstance(templates, list):
        return
    claims = [
        str(template["metadata"]["name"])
        for template in templates
        if isinstance(template, Mapping)
        and isinstance(template.get("metadata"), Mapping)
        and template["metadata"].get("name")
    ]
    volumes = [
        {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}-0"}}
        for claim in claims
    ]
    known = pod["spec"].get("volumes") or []
    if claims and isinstance(known, list):
        kept = [v for v in known if not isinstance(v, Mapping) or v.get("name") not in claims]
        pod["spec"] = {**pod["spec"], "volumes": volumes + kept}


def _at(prefix: str) -> str:
    return f"{prefix} " if prefix else "the document "


def _join(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path
