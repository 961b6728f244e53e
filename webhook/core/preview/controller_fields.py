"""The fields that a controller or the API server would add to a pod.

A controller completes its template before it creates a pod. This module adds only fields that a
decision may depend on: labels, volumes and the reference to the owner.

A DaemonSet also binds each pod to one node (`ReplaceDaemonSetPodNodeNameNodeAffinity`). A preview
keeps the template's affinity, so its decision covers all nodes on which the DaemonSet may run pods.
The tolerations that a DaemonSet adds have keys, and remedies read only tolerations without a key.

Sources: kubernetes `pkg/controller/controller_utils.go` (`GetPodFromTemplate`), and the files that
the functions name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from webhook.core.preview.document import mapping_in

_OWNERS = {
    "Deployment": ("apps/v1", "ReplicaSet"),
    "ReplicaSet": ("apps/v1", "ReplicaSet"),
    "StatefulSet": ("apps/v1", "StatefulSet"),
    "DaemonSet": ("apps/v1", "DaemonSet"),
    "Job": ("batch/v1", "Job"),
    "CronJob": ("batch/v1", "Job"),
    "ReplicationController": ("v1", "ReplicationController"),
    "DeploymentConfig": ("v1", "ReplicationController"),
}
"""The API version and kind of the objects that create the pods of each kind of workload."""

# The values are made up, because only a cluster knows them.
_HASH = "0"
_UID = "00000000-0000-0000-0000-000000000000"

_GENERATED_LABELS = {
    # pkg/controller/deployment/sync.go
    "Deployment": {"pod-template-hash": _HASH},
    # pkg/controller/daemon/util/daemonset_util.go
    "DaemonSet": {"controller-revision-hash": _HASH, "pod-template-generation": "1"},
    # pkg/controller/statefulset/stateful_set_utils.go
    "StatefulSet": {"controller-revision-hash": _HASH},
}
_GENERATED_JOB_LABELS = {"batch.kubernetes.io/controller-uid": _UID, "controller-uid": _UID}

_IN_CONTAINERS = {
    "command": "",
    "args": "",
    "resources.limits": "0",
    "resources.requests": "0",
    "securityContext.capabilities.add": "",
    "securityContext.capabilities.drop": "",
}
_TEXTS = {
    **dict.fromkeys(("metadata.labels", "metadata.annotations", "spec.nodeSelector"), ""),
    **{
        f"spec.{containers}.{path}": zero
        for containers in ("initContainers", "containers")
        for path, zero in _IN_CONTAINERS.items()
    },
}
"""The mappings and lists of texts that a decision reads, each with what null means in it."""

_MAX_ORDINAL = 2**31 - 1


def add_controller_fields(
    document: Mapping[str, Any], kind: str, name: str, pod: dict[str, Any]
) -> None:
    """Add the labels and volumes whose values follow from the workload and its name.

    `document` is the workload. Changes `pod` in place.
    """
    if kind in ("Job", "CronJob"):
        job = name if kind == "Job" else f"{name}-0"
        spec = _job_spec(document, kind)
        if _generates_selector(spec):
            # pkg/registry/batch/job/strategy.go
            _add_labels(pod, {"batch.kubernetes.io/job-name": job, "job-name": job})
        if spec.get("completionMode") == "Indexed":
            # pkg/controller/job/indexed_job_utils.go
            _add_labels(pod, {"batch.kubernetes.io/job-completion-index": "0"})
    elif kind == "StatefulSet":
        # pkg/controller/statefulset/stateful_set_utils.go
        ordinal = _start_ordinal(document)
        _add_labels(
            pod,
            {
                "apps.kubernetes.io/pod-index": str(ordinal),
                "statefulset.kubernetes.io/pod-name": f"{name}-{ordinal}",
            },
        )
        _add_claim_volumes(document, f"{name}-{ordinal}", pod)
    elif kind == "DeploymentConfig":
        # openshift/library-go pkg/apps/appsutil
        _add_labels(pod, {"deploymentconfig": name, "deployment": f"{name}-1"})


def with_generated_fields(
    document: Mapping[str, Any], kind: str, name: str, pod: dict[str, Any]
) -> dict[str, Any]:
    """Return the pod with the fields whose values only a cluster knows.

    Decisions depend on the kind of the owner and on the keys of labels, not on these values. A pod
    that is shown has none of these fields. The garbage collector would delete a pod whose owner
    does not exist, if a person created the pod from a preview.
    """
    if kind not in _OWNERS:
        return pod
    version, owner = _OWNERS[kind]
    metadata = dict(pod["metadata"])
    metadata["ownerReferences"] = [
        {"apiVersion": version, "kind": owner, "name": name, "uid": _UID, "controller": True}
    ]
    generated = _GENERATED_LABELS.get(kind, {})
    if kind in ("Job", "CronJob") and _generates_selector(_job_spec(document, kind)):
        generated = _GENERATED_JOB_LABELS
    existing = metadata.get("labels") or {}
    if isinstance(existing, Mapping):
        metadata["labels"] = {**generated, **existing}
    return {**pod, "metadata": metadata}


def fill_in_nulls(pod: dict[str, Any]) -> None:
    """Replace nulls in mappings and lists of texts as the API server does.

    Go decodes the value null, or an item that is null, to an empty text or a quantity of 0.
    """
    for path, zero in _TEXTS.items():
        pod |= _filled(pod, path.split("."), zero)


def _filled(value: Any, path: Sequence[str], zero: str) -> Any:
    """Return a value without nulls in what is at a path, also in each item of a list."""
    if isinstance(value, list):
        return [zero if each is None and not path else _filled(each, path, zero) for each in value]
    if not isinstance(value, Mapping):
        return value
    if not path:
        return {key: zero if each is None else each for key, each in value.items()}
    key, *rest = path
    return {**value, key: _filled(value[key], rest, zero)} if key in value else value


def _add_labels(pod: dict[str, Any], labels: Mapping[str, str]) -> None:
    existing = pod["metadata"].get("labels") or {}
    if isinstance(existing, Mapping):
        pod["metadata"]["labels"] = {**existing, **labels}


def _job_spec(document: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the spec of a Job, or of the Jobs that a CronJob creates."""
    spec = mapping_in(document, "spec")
    return spec if kind == "Job" else mapping_in(spec.get("jobTemplate"), "spec")


def _generates_selector(job_spec: Mapping[str, Any]) -> bool:
    """Return whether the API server adds the labels of the Job's own selector to its template."""
    return job_spec.get("manualSelector") is not True


def _start_ordinal(document: Mapping[str, Any]) -> int:
    """Return the number of a StatefulSet's first pod."""
    start = mapping_in(mapping_in(document, "spec"), "ordinals").get("start")
    return start if type(start) is int and 0 <= start <= _MAX_ORDINAL else 0


def _add_claim_volumes(document: Mapping[str, Any], pod_name: str, pod: dict[str, Any]) -> None:
    """Add the volumes of a StatefulSet's volumeClaimTemplates to its pod."""
    templates = mapping_in(document, "spec").get("volumeClaimTemplates")
    if not isinstance(templates, list):
        return
    names = (mapping_in(template, "metadata").get("name") for template in templates)
    claims = [str(name) for name in names if name]
    volumes = [
        {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{pod_name}"}}
        for claim in claims
    ]
    existing = pod["spec"].get("volumes") or []
    if claims and isinstance(existing, list):
        other_volumes = [
            v for v in existing if not isinstance(v, Mapping) or v.get("name") not in claims
        ]
        pod["spec"] = {**pod["spec"], "volumes": volumes + other_volumes}
