"""The fields that a controller would add to a pod.

A controller completes its template before it creates a pod. This module adds only fields that a
policy may read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def add_controller_fields(
    document: Mapping[str, Any], kind: str, name: str, pod: dict[str, Any]
) -> None:
    """Add labels and volumes to a pod of a Job, CronJob or StatefulSet.

    `document` is the workload, and `name` its name. Changes `pod` in place.
    """
    if kind == "Job":
        # kubernetes pkg/controller/job/job_controller.go
        _add_labels(pod, {"batch.kubernetes.io/job-name": name, "job-name": name})
    elif kind == "CronJob":
        job = f"{name}-0"
        _add_labels(pod, {"batch.kubernetes.io/job-name": job, "job-name": job})
    elif kind == "StatefulSet":
        # kubernetes pkg/controller/statefulset/stateful_set_utils.go
        _add_labels(
            pod,
            {
                "apps.kubernetes.io/pod-index": "0",
                "statefulset.kubernetes.io/pod-name": f"{name}-0",
            },
        )
        _add_claim_volumes(document, name, pod)


def fill_in_nulls(pod: dict[str, Any]) -> None:
    """Replace null values of labels and annotations by empty texts, as the API server does."""
    metadata = pod.get("metadata")
    if isinstance(metadata, Mapping):
        pod["metadata"] = metadata = dict(metadata)
        for key in ("labels", "annotations"):
            if isinstance(metadata.get(key), Mapping):
                metadata[key] = {k: "" if v is None else v for k, v in metadata[key].items()}


def _add_labels(pod: dict[str, Any], labels: Mapping[str, str]) -> None:
    existing = pod["metadata"].get("labels") or {}
    if isinstance(existing, Mapping):
        pod["metadata"]["labels"] = {**existing, **labels}


def _add_claim_volumes(document: Mapping[str, Any], name: str, pod: dict[str, Any]) -> None:
    """Add the volumes of a StatefulSet's volumeClaimTemplates to its pod."""
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
    existing = pod["spec"].get("volumes") or []
    if claims and isinstance(existing, list):
        other_volumes = [
            v for v in existing if not isinstance(v, Mapping) or v.get("name") not in claims
        ]
        pod["spec"] = {**pod["spec"], "volumes": volumes + other_volumes}
