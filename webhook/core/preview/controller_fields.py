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
from typing import Any, NamedTuple

from webhook.core.preview.document import mapping_in

# The values are made up, because only a cluster knows them.
_HASH = "0"
_UID = "00000000-0000-0000-0000-000000000000"


class KindWithPods(NamedTuple):
    """A kind whose objects are pods, or contain the template of pods."""

    template: tuple[str, ...] = ("spec", "template")
    """The keys that lead to the pod template. Empty for a pod."""
    owner: tuple[str, str] | None = None
    """The API version and kind of the objects that create the pods. None if no controller does."""
    generated_labels: Mapping[str, str] = {}
    """The labels whose values only a cluster knows."""


_JOB_LABELS = {"batch.kubernetes.io/controller-uid": _UID, "controller-uid": _UID}
KINDS_WITH_PODS = {
    "Pod": KindWithPods(()),
    # pkg/controller/deployment/sync.go
    "Deployment": KindWithPods(
        owner=("apps/v1", "ReplicaSet"), generated_labels={"pod-template-hash": _HASH}
    ),
    # pkg/controller/statefulset/stateful_set_utils.go
    "StatefulSet": KindWithPods(
        owner=("apps/v1", "StatefulSet"), generated_labels={"controller-revision-hash": _HASH}
    ),
    # pkg/controller/daemon/util/daemonset_util.go
    "DaemonSet": KindWithPods(
        owner=("apps/v1", "DaemonSet"),
        generated_labels={"controller-revision-hash": _HASH, "pod-template-generation": "1"},
    ),
    "ReplicaSet": KindWithPods(owner=("apps/v1", "ReplicaSet")),
    "ReplicationController": KindWithPods(owner=("v1", "ReplicationController")),
    "Job": KindWithPods(owner=("batch/v1", "Job"), generated_labels=_JOB_LABELS),
    "CronJob": KindWithPods(
        ("spec", "jobTemplate", "spec", "template"), ("batch/v1", "Job"), _JOB_LABELS
    ),
    "PodTemplate": KindWithPods(("template",)),
    "DeploymentConfig": KindWithPods(owner=("v1", "ReplicationController")),
}

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
) -> dict[str, Any]:
    """Add the labels and volumes whose values follow from the workload and its name.

    `document` is the workload. Changes `pod` in place, and returns the pod as its controller would
    create it. That one also has the fields whose values only a cluster knows. Decisions depend on
    the kind of the owner and on the keys of labels, not on these values.

    A pod that is shown has none of these fields. The garbage collector would delete a pod whose
    owner does not exist, if a person created the pod from a preview.
    """
    about = KINDS_WITH_PODS.get(kind, KindWithPods())
    if about.owner is None:
        return pod
    spec: Any = document
    for step in about.template[:-1]:
        spec = mapping_in(spec, step)
    labels: dict[str, str] = {}
    generated = about.generated_labels
    if kind in ("Job", "CronJob"):
        job = name if kind == "Job" else f"{name}-0"
        # The API server adds the labels of the Job's own selector to its template
        # (pkg/registry/batch/job/strategy.go).
        if spec.get("manualSelector") is True:
            generated = {}
        else:
            labels = {"batch.kubernetes.io/job-name": job, "job-name": job}
        if spec.get("completionMode") == "Indexed":
            # pkg/controller/job/indexed_job_utils.go
            labels["batch.kubernetes.io/job-completion-index"] = "0"
    elif kind == "StatefulSet":
        # pkg/controller/statefulset/stateful_set_utils.go
        start = mapping_in(spec, "ordinals").get("start")
        ordinal = start if type(start) is int and 0 <= start <= _MAX_ORDINAL else 0
        labels = {
            "apps.kubernetes.io/pod-index": str(ordinal),
            "statefulset.kubernetes.io/pod-name": f"{name}-{ordinal}",
        }
        _add_claim_volumes(spec.get("volumeClaimTemplates"), f"{name}-{ordinal}", pod)
    elif kind == "DeploymentConfig":
        # openshift/library-go pkg/apps/appsutil
        labels = {"deploymentconfig": name, "deployment": f"{name}-1"}
    metadata = pod["metadata"]
    existing = metadata.get("labels") or {}
    takes_labels = isinstance(existing, Mapping)
    if labels and takes_labels:
        metadata["labels"] = {**existing, **labels}
    version, owner = about.owner
    reference = {"apiVersion": version, "kind": owner, "name": name, "uid": _UID}
    created = {**metadata, "ownerReferences": [{**reference, "controller": True}]}
    if takes_labels:
        created["labels"] = {**generated, **existing, **labels}
    return {**pod, "metadata": created}


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


def _add_claim_volumes(templates: object, pod_name: str, pod: dict[str, Any]) -> None:
    """Add the volumes of a StatefulSet's volumeClaimTemplates to its pod."""
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
