"""Decoders of Kubernetes objects: from parsed JSON or YAML to podsettle's own types.

Each function raises msgspec.ValidationError where a field has the wrong type. The error's text ends
with the JSON path of the field.
"""

from __future__ import annotations

from sys import intern
from typing import Any

import msgspec

from webhook.core.cluster.nodes import Node
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.cluster.view import Namespace
from webhook.core.constants import LABEL_NAMESPACE_NAME

# OpenShift assigns a range of SELinux levels to each namespace, and the first level of the range to
# the namespace's pods.
_SELINUX_LEVEL_ANNOTATION = "openshift.io/sa.scc.mcs"


class SharedValues:
    """The first label values that were decoded, so that equal values share one string.

    Values that thousands of objects share occur among the first thousand values. To store a unique
    value, such as an object's name, would cost more memory than it saves.
    """

    def __init__(self, max_values: int = 1_000) -> None:
        self._max_values = max_values
        self._values: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._values)

    def share(self, labels: dict[str, str] | None) -> dict[str, str]:
        """Return labels whose keys and frequent values are strings of earlier objects."""
        return {intern(key): self._share_value(value) for key, value in (labels or {}).items()}

    def _share_value(self, value: str) -> str:
        if len(self._values) < self._max_values:
            return self._values.setdefault(value, value)
        return self._values.get(value, value)


_SHARED_VALUES = SharedValues()


class _Metadata(msgspec.Struct):
    name: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Namespace(msgspec.Struct):
    metadata: _Metadata


class _NodeInfo(msgspec.Struct, rename="camel"):
    container_runtime_version: str = ""
    kubelet_version: str = ""


class _NodeStatus(msgspec.Struct, rename="camel"):
    node_info: _NodeInfo = msgspec.field(default_factory=_NodeInfo)


class _Node(msgspec.Struct):
    metadata: _Metadata
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _Overhead(msgspec.Struct, rename="camel"):
    pod_fixed: dict[str, Any] | None = None


class _Scheduling(msgspec.Struct, rename="camel"):
    node_selector: dict[str, str] | None = None


class _RuntimeClass(msgspec.Struct):
    metadata: _Metadata
    handler: str = ""
    overhead: _Overhead | None = None
    scheduling: _Scheduling | None = None


def read_namespace(document: object, shared_values: SharedValues = _SHARED_VALUES) -> Namespace:
    """Return a Namespace from its document.

    Adds the label `kubernetes.io/metadata.name`, which a manifest may leave out.
    """
    metadata = msgspec.convert(document, _Namespace).metadata
    labels = {**shared_values.share(metadata.labels), LABEL_NAMESPACE_NAME: metadata.name}
    return Namespace(
        metadata.name, labels, _SELINUX_LEVEL_ANNOTATION in (metadata.annotations or {})
    )


def read_node(document: object) -> Node:
    """Return a Node from its document."""
    node = msgspec.convert(document, _Node)
    info = node.status.node_info
    return Node.read(
        node.metadata.name,
        _SHARED_VALUES.share(node.metadata.labels),
        info.container_runtime_version,
        info.kubelet_version,
    )


def read_runtime_class(document: object) -> RuntimeClassInfo:
    """Return a RuntimeClass from its document of `node.k8s.io/v1`."""
    found = msgspec.convert(document, _RuntimeClass)
    return RuntimeClassInfo(
        found.metadata.name,
        found.handler,
        (found.overhead.pod_fixed if found.overhead else None) or {},
        (found.scheduling.node_selector if found.scheduling else None) or {},
    )
