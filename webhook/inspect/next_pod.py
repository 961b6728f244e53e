"""The pod that a workload creates next: a running pod without what was added to it.

A running pod has a node, what its RuntimeClass added, labels that controllers wrote later, and the
patches of podsettle. A decision on it would say too often that the pod is already settled, and a
policy that selects such a label covers no new pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from webhook.core.admission.apply_plan import parse_applied
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.constants import ANNOTATION_MIRROR, OWN_ANNOTATIONS, SKIP_RELABEL_ANNOTATIONS
from webhook.core.decision_input import READ_ANNOTATIONS
from webhook.core.pod import Pod, decode_pod
from webhook.core.preview.document import copy_value
from webhook.core.remedies import REMEDIES
from webhook.inspect.objects import LivePod

_RECORDS = OWN_ANNOTATIONS.difference(SKIP_RELABEL_ANNOTATIONS)
_READ_ANNOTATIONS = READ_ANNOTATIONS.difference(_RECORDS) | {ANNOTATION_MIRROR}
"""The annotations of authors that decisions read."""
_LATER_PREFIXES = ("topology.kubernetes.io/", "topology.k8s.io/")
"""The prefixes of labels that the API server copies from the node to the pod at its binding
(kubernetes `plugin/pkg/admission/podtopologylabels`, with the second one while it was alpha)."""
_LATER_LABELS = frozenset({
    "airflow_executor_done", "airflow_pod_revoked", "already_checked", "ray.io/serve",
    "spark-exec-inactive", "velero.io/backup-name", "velero.io/restore-name",
    "workflows.argoproj.io/completed",
})  # fmt: skip
"""Labels that the creator of a pod sets later, so that `managedFields` does not tell when:
Airflow's executor and its KubernetesPodOperator, Spark (`ExecutorPodsLifecycleManager`), KubeRay as
it serves, Argo Workflows, and Velero for what it restores (`pkg/restore/restore.go`)."""
_KUEUE = "kueue.x-k8s.io/"
_OF_ADMISSION = {_KUEUE + name for name in ("podset", "cluster-queue-name", "local-queue-name")}
"""Labels that Kueue adds when it admits a pod that it manages itself. A Job's pods are created with
them (kueue `pkg/controller/jobs/pod/pod_controller.go`: `Run`)."""


def next_pod(pod: LivePod, runtime_classes: Mapping[str, RuntimeClassInfo]) -> Pod:
    """Return the next pod for a decision, without a node, because it may land on another one.

    Of the annotations only those that decisions read are kept, because others can be long. Raises
    one of DECODE_ERRORS for a malformed pod.
    """
    document = next_pod_document(msgspec.json.decode(msgspec.json.encode(pod)), runtime_classes)
    metadata = document["metadata"]
    document["spec"].pop("nodeName", None)
    annotations = metadata.pop("annotations", None) or {}
    if kept := {key: text for key, text in annotations.items() if key in _READ_ANNOTATIONS}:
        metadata["annotations"] = kept
    return decode_pod(msgspec.json.encode(document))


def next_pod_document(
    document: Mapping[str, Any], runtime_classes: Mapping[str, RuntimeClassInfo]
) -> dict[str, Any]:
    """Return a pod without what was added to it, but with its node.

    `document` is a pod that can be decoded as a LivePod. Of the remedies, those are undone that its
    annotation ANNOTATION_APPLIED names.
    """
    pod: dict[str, Any] = copy_value(document)
    metadata, spec = pod["metadata"], pod["spec"]
    labels = labels_at_creation(metadata.pop("labels", None), metadata.pop("managedFields", None))
    # The creator of a pod seldom knows its node.
    if of_any := {key: text for key, text in labels.items() if text != spec.get("nodeName")}:
        metadata["labels"] = of_any
    # The API server has added the overhead and the nodeSelector of the class.
    # A pod of a DaemonSet gets a class only if its own nodeSelector or its node suits that.
    owners = metadata.get("ownerReferences") or ()
    known = runtime_classes.get(spec.get("runtimeClassName") or "")
    if known is not None and not any(each.get("kind") == "DaemonSet" for each in owners):
        added, selector = known.node_selector, spec.pop("nodeSelector", None) or {}
        if own := {key: value for key, value in selector.items() if added.get(key) != value}:
            spec["nodeSelector"] = own
        spec.pop("overhead", None)
    annotations = metadata.pop("annotations", None) or {}
    applied = {remedy for _, remedy in parse_applied(annotations)}
    if kept := {key: text for key, text in annotations.items() if key not in _RECORDS}:
        metadata["annotations"] = kept
    for name in applied & REMEDIES.keys():
        REMEDIES[name].undo(pod)
    if not metadata.get("annotations"):
        metadata.pop("annotations", None)
    return pod


def labels_at_creation(labels: Mapping[str, str] | None, managed_fields: Any) -> dict[str, str]:
    """Return the labels that a pod had at its creation, as far as it is known.

    `managed_fields` is `metadata.managedFields`, which kubectl leaves out of its output. The first
    manager that set containers created the pod. It did not resize them, which has a subresource.
    """
    later = _LATER_LABELS | (_OF_ADMISSION if f"{_KUEUE}managed" in (labels or {}) else set())
    owned = None
    with suppress(AttributeError, TypeError):  # A dump may have any value here.
        entries = sorted(managed_fields or (), key=lambda entry: str(entry.get("time")))
        fields = (x.get("fieldsV1") or {} for x in entries if not x.get("subresource"))
        created = next((each for each in fields if "f:containers" in each.get("f:spec", {})), None)
        owned = created and created.get("f:metadata", {}).get("f:labels", {}).keys()
    return {
        key: value
        for key, value in (labels or {}).items()
        if not (key.startswith(_LATER_PREFIXES) or key in later)
        and (owned is None or f"f:{key}" in owned)
    }
