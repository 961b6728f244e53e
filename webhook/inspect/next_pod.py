"""The next pod of a workload, for a preview of what a policy would do to it.

A running pod has a node, what RuntimeClasses added, and the patches of podsettle. Its workload
creates the next pod without them. So a decision on the running pod would say too often that the
pod is already settled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.constants import (
    ANNOTATION_APPLIED,
    ANNOTATION_MIRROR,
    ANNOTATION_SETTLED,
    ANNOTATION_SKIP,
    ANNOTATION_SKIPPED,
    ANNOTATION_START_GATE,
    ANNOTATION_SUMMARY,
    HELPER,
    HELPER_MOUNT,
    OWN_CONTAINERS,
    SKIP_RELABEL_ANNOTATIONS,
)
from webhook.core.patch.edits import Edit
from webhook.core.pod import Pod, decode_pod
from webhook.core.preview.document import copy_value
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.command_wrapper import unwrapped
from webhook.core.remedies.retry_init_exit_255 import RESTART_RULES
from webhook.inspect.objects import LivePod

_MAX_APPLIED_CHARACTERS = 4_096
"""The beginning of ANNOTATION_APPLIED that is read. podsettle writes at most 2 KiB."""
_RECORDS = frozenset(
    {ANNOTATION_APPLIED, ANNOTATION_SETTLED, ANNOTATION_SUMMARY, ANNOTATION_SKIPPED}
)
_READ_ANNOTATIONS = frozenset(
    {ANNOTATION_SKIP, ANNOTATION_START_GATE, ANNOTATION_MIRROR, *SKIP_RELABEL_ANNOTATIONS}
)
"""The annotations of authors that decisions read."""


def next_pod(pod: LivePod, runtime_classes: Mapping[str, RuntimeClassInfo]) -> Pod:
    """Return a running pod without what the cluster and podsettle added to it.

    Of the annotations only those that decisions read are kept, because others can be long. Raises
    one of DECODE_ERRORS for a malformed pod.
    """
    encoded = msgspec.json.encode(pod.before_scheduling())
    document = next_pod_document(msgspec.json.decode(encoded), runtime_classes)
    annotations = document["metadata"].get("annotations") or {}
    kept = {key: text for key, text in annotations.items() if key in _READ_ANNOTATIONS}
    _set_or_remove(document["metadata"], "annotations", kept)
    return decode_pod(msgspec.json.encode(document))


def next_pod_document(
    document: Mapping[str, Any], runtime_classes: Mapping[str, RuntimeClassInfo]
) -> dict[str, Any]:
    """Return a pod without the remedies that its annotation ANNOTATION_APPLIED names.

    `document` is a pod that can be decoded as a LivePod. The result keeps its node.
    """
    pod: dict[str, Any] = copy_value(document)
    metadata, spec = pod["metadata"], pod["spec"]
    annotations = metadata.get("annotations") or {}
    applied = annotations.get(ANNOTATION_APPLIED, "")[:_MAX_APPLIED_CHARACTERS]
    names = {pair.rpartition("/")[2] for pair in applied.split(",")} & REMEDIES.keys()
    remedies = [REMEDIES[name] for name in names]
    written = _RECORDS.union(*(remedy.annotations for remedy in remedies))
    if annotations:
        kept = {key: text for key, text in annotations.items() if key not in written}
        _set_or_remove(metadata, "annotations", kept)
    fields = frozenset().union(*(remedy.fields for remedy in remedies))
    if "/spec/runtimeClassName" in fields:
        _remove_additions_of_class(spec, runtime_classes)
    for path in fields:
        _remove_field(pod, path)
    if remedies:
        _remove_injected(spec)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        _remove_wrapper_and_rules(container, names)
    return pod


def _remove_additions_of_class(
    spec: dict[str, Any], runtime_classes: Mapping[str, RuntimeClassInfo]
) -> None:
    """Remove the overhead and the nodeSelector that the API server has added for the class."""
    name = spec.get("runtimeClassName")
    if not name:
        return
    added = runtime_classes[name].node_selector if name in runtime_classes else {}
    selector = {k: v for k, v in (spec.get("nodeSelector") or {}).items() if added.get(k) != v}
    _set_or_remove(spec, "nodeSelector", selector)
    spec.pop("overhead", None)


def _remove_field(pod: dict[str, Any], path: str) -> None:
    """Remove the field at a path such as `/spec/runtimeClassName`, if the pod has it."""
    *parents, field = path.split("/")[1:]
    value: Any = pod
    for parent in parents:
        value = value.get(parent) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value.pop(field, None)


def _remove_injected(spec: dict[str, Any]) -> None:
    """Remove podsettle's containers and its volume."""
    own_names = {"initContainers": OWN_CONTAINERS, "volumes": {HELPER}}
    for key, names in own_names.items():
        others = [each for each in spec.get(key) or () if each.get("name") not in names]
        _set_or_remove(spec, key, others)


def _remove_wrapper_and_rules(container: dict[str, Any], remedies: Collection[str]) -> None:
    """Remove what the named remedies have set in a container."""
    if any(Edit.COMMAND in REMEDIES[name].edits for name in remedies):
        for key in ("command", "args"):  # Another webhook may have moved the wrapper.
            if isinstance(container.get(key), list):
                container[key] = unwrapped(container[key])
        mounts = container.get("volumeMounts")
        if isinstance(mounts, list):
            others = [each for each in mounts if not _is_helper_mount(each)]
            _set_or_remove(container, "volumeMounts", others)
    if "retryInitExit255" in remedies and container.get("restartPolicyRules") == RESTART_RULES:
        del container["restartPolicyRules"]
        container.pop("restartPolicy", None)


def _is_helper_mount(mount: Any) -> bool:
    return isinstance(mount, dict) and mount.get("mountPath") == HELPER_MOUNT


def _set_or_remove(values: dict[str, Any], key: str, value: Collection[Any]) -> None:
    """Set a field to a list or a mapping. Remove the field if the value is empty."""
    if value:
        values[key] = value
    else:
        values.pop(key, None)
