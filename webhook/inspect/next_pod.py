"""The next pod of a workload, for a preview of what a policy would do to it.

A running pod has a node, what RuntimeClasses added, and the patches of podsettle. Its workload
creates the next pod without them. So a decision on the running pod would say too often that the
pod is already settled.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.constants import (
    ANNOTATION_APPLIED,
    ANNOTATION_SKIP,
    HELPER,
    HELPER_MOUNT,
    OWN_CONTAINERS,
)
from webhook.core.pod import UNSET, Container, ObjectMeta, Pod, PodSpec
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.post_init_sleep import unwrapped
from webhook.inspect.objects import LivePod

_MAX_APPLIED_CHARACTERS = 4_096
"""The beginning of ANNOTATION_APPLIED that is read. podsettle writes at most 2 KiB."""
_restarts_after_255 = REMEDIES["retryInitExit255"].container_sign


def next_pod(pod: LivePod, runtime_classes: Mapping[str, RuntimeClassInfo]) -> Pod:
    """Return a running pod without what the cluster and podsettle added to it.

    Of the annotations only `podsettle.dev/skip` is kept, because no decision reads those of others.
    Raises one of DECODE_ERRORS for malformed mounts.
    """
    metadata, spec = pod.metadata, pod.spec
    annotations = metadata.annotations or {}
    applied = annotations.get(ANNOTATION_APPLIED, "")[:_MAX_APPLIED_CHARACTERS]
    remedies = {pair.rpartition("/")[2] for pair in applied.split(",")} & REMEDIES.keys()
    fields = frozenset().union(*(REMEDIES[name].fields for name in remedies))
    inits = [each for each in spec.init_containers or () if each.name not in OWN_CONTAINERS]
    spec = replace(
        spec,
        node_name=None,
        volumes=[each for each in spec.volumes or () if each.name != HELPER] or None,
        init_containers=[_unsettled(each) for each in inits] or None,
        containers=[_unsettled(each) for each in spec.containers or ()],
    )
    kept = {key: annotations[key] for key in (ANNOTATION_SKIP,) if key in annotations}
    return Pod(
        spec=_without_fields(spec, fields, runtime_classes),
        metadata=ObjectMeta(
            name=metadata.name,
            labels=metadata.labels,
            annotations=kept or None,
            owner_references=metadata.owner_references,
        ),
    )


def _unsettled(container: Container) -> Container:
    """Return a container without the wrapper, the helper's mount and the restart rules."""
    if container.command:
        container = replace(container, command=unwrapped(container.command))
    if _restarts_after_255(container):
        container = replace(container, restart_policy=None, restart_policy_rules=None)
    if HELPER_MOUNT.encode() in bytes(container.volume_mounts):
        others = [each for each in container.mounts if each.mount_path != HELPER_MOUNT]
        mounts = Raw(msgspec.json.encode(others)) if others else UNSET
        container = replace(container, volume_mounts=mounts)
    return container


def _without_fields(
    spec: PodSpec, fields: frozenset[str], runtime_classes: Mapping[str, RuntimeClassInfo]
) -> PodSpec:
    """Return a spec without the fields that podsettle set, and without what followed from them."""
    if "/spec/runtimeClassName" in fields and spec.runtime_class_name:
        # The API server has added the overhead and the node selector of the class.
        known = runtime_classes.get(spec.runtime_class_name)
        added = known.node_selector if known is not None else {}
        selector = {k: v for k, v in (spec.node_selector or {}).items() if added.get(k) != v}
        spec = replace(spec, runtime_class_name=None, overhead=None, node_selector=selector or None)
    context = spec.security_context
    if context is not None and "/spec/securityContext/fsGroupChangePolicy" in fields:
        context = replace(context, fs_group_change_policy=None)
    if context is not None and "/spec/securityContext/seLinuxChangePolicy" in fields:
        context = replace(context, se_linux_change_policy=None)
    return replace(spec, security_context=context)
