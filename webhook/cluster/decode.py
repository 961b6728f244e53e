"""Functions that convert Kubernetes objects to podsettle's own types.

An object is either parsed already, as one of a manifest, or a msgspec.Raw, the JSON of the API
server. Of JSON, only the fields that podsettle reads are decoded: to decode a whole Node of 2 MB
would block the event loop for 0.1 s.

Each function raises msgspec.ValidationError if a field has the wrong type. The error's text ends
with the JSON path of the field. For JSON that is not valid, it raises one of DECODE_ERRORS.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from sys import intern
from typing import Any, TypeAlias, TypeVar

import msgspec

from webhook.core.cluster.nodes import Node
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.cluster.view import NO_SELECTOR, Namespace
from webhook.core.constants import (
    ANNOTATION_ALLOWED_ANNOTATIONS,
    ANNOTATION_MIN_MEMORY,
    ANNOTATION_NAMESPACE_LEVEL,
    ANNOTATION_NODE_SELECTOR,
    LABEL_NAMESPACE_NAME,
)
from webhook.limited_log import LimitedLog

# A kubelet can list any number of handlers. Real nodes have a dozen at most. A RuntimeClass's
# handler is a DNS label, so it has at most 63 characters.
_MAX_HANDLERS = 100
_MAX_HANDLER_CHARACTERS = 63
# The API server limits only the size of an object, so a tenant can set 60,000 labels. They would
# take 60 ms at each event, and 7 MB. Real objects have a few dozen.
_MAX_LABELS = 1_000
# An editor of a namespace writes its annotations. Of a longer selector, nothing is used.
_MAX_SELECTOR_CHARACTERS = 2_048
_NODE_SELECTOR = "scheduler.alpha.kubernetes.io/node-selector"
"""The selector that the plugin PodNodeSelector adds, as on AKS and OpenShift. With it, OpenShift
does not add that of the project."""

T = TypeVar("T")

# Equal label values share one string. One that thousands of objects have stays in the cache. To
# keep unique ones too, such as an object's name, would cost more memory than it saves.
_shared_value = lru_cache(1_000)(str)


_log = LimitedLog(logging.getLogger(__name__), seconds=60.0)

_Texts: TypeAlias = dict[str, str | None] | None
"""A mapping in a manifest, in which a key may have no value. It is an empty text, as for Go."""


class _Metadata(msgspec.Struct):
    name: str
    labels: _Texts = None
    annotations: _Texts = None


class _Object(msgspec.Struct):
    metadata: _Metadata


class _NodeInfo(msgspec.Struct, rename="camel"):
    container_runtime_version: str = ""
    kubelet_version: str = ""


class _RuntimeHandler(msgspec.Struct):
    name: str = ""
    """The empty text is the default handler."""


class _NodeStatus(msgspec.Struct, rename="camel"):
    node_info: _NodeInfo = msgspec.field(default_factory=_NodeInfo)
    runtime_handlers: list[_RuntimeHandler] | None = None


class _Node(_Object):
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _Overhead(msgspec.Struct, rename="camel"):
    pod_fixed: dict[str, Any] | None = None


class _Scheduling(msgspec.Struct, rename="camel"):
    node_selector: _Texts = None
    tolerations: list[dict[str, Any]] | None = None


class _RuntimeClass(_Object):
    handler: str = ""
    overhead: _Overhead | None = None
    scheduling: _Scheduling | None = None


def read_namespace(document: object) -> Namespace:
    """Convert a Namespace document.

    Adds the label `kubernetes.io/metadata.name`, because a manifest may omit it.
    """
    metadata = _read(document, _Object).metadata
    labels = {**_labels(metadata, "namespace"), LABEL_NAMESPACE_NAME: metadata.name}
    annotations = metadata.annotations or {}
    text = annotations.get(_NODE_SELECTOR, annotations.get(ANNOTATION_NODE_SELECTOR)) or ""
    terms = text.split(",") if len(text) <= _MAX_SELECTOR_CHARACTERS else ()
    pairs = (each.partition("=") for each in terms)
    selector = {key.strip(): value.strip() for key, equals, value in pairs if equals}
    has_level = ANNOTATION_NAMESPACE_LEVEL in annotations
    return Namespace(metadata.name, labels, has_level, selector or NO_SELECTOR)


def read_node(document: object) -> Node:
    """Convert a Node document."""
    node = _read(document, _Node)
    info = node.status.node_info
    names = [each.name for each in node.status.runtime_handlers or ()]
    known = len(names) <= _MAX_HANDLERS and all(len(n) <= _MAX_HANDLER_CHARACTERS for n in names)
    return Node.read(
        node.metadata.name,
        _labels(node.metadata, "node"),
        info.container_runtime_version,
        info.kubelet_version,
        _shared_set(tuple(names)) if known else None,
    )


def _labels(metadata: _Metadata, kind: str) -> dict[str, str]:
    """Return the labels of an object, or none if there are too many."""
    if len(metadata.labels or ()) <= _MAX_LABELS:
        return _shared(metadata.labels)
    _log.warning(f"{kind} {metadata.name!r}: its labels are ignored: more than {_MAX_LABELS}")
    return {}


def _shared(labels: _Texts) -> dict[str, str]:
    """Return labels whose keys and frequent values are strings of earlier objects."""
    return {intern(key): _shared_value(value or "") for key, value in (labels or {}).items()}


# Nodes with the same handlers share a set, because few nodes differ in them. Kubelets choose the
# entries, which take up to 2 MB together.
_shared_set = lru_cache(100)(frozenset[str])


def read_runtime_class(document: object) -> RuntimeClassInfo:
    """Convert a RuntimeClass document of `node.k8s.io/v1`."""
    runtime_class = _read(document, _RuntimeClass)
    # Not shared: the value of another annotation may be large.
    written = runtime_class.metadata.annotations or {}
    annotations = {key: value or "" for key, value in written.items()}
    allowed = annotations.get(ANNOTATION_ALLOWED_ANNOTATIONS)
    scheduling = runtime_class.scheduling or _Scheduling()
    return RuntimeClassInfo(
        runtime_class.metadata.name,
        runtime_class.handler,
        (runtime_class.overhead.pod_fixed if runtime_class.overhead else None) or {},
        _shared(scheduling.node_selector),
        annotations.get(ANNOTATION_MIN_MEMORY),
        None if allowed is None else frozenset(map(str.strip, allowed.split(","))) - {""},
        None if runtime_class.scheduling is None else tuple(scheduling.tolerations or ()),
    )


def _read(document: object, as_type: type[T]) -> T:
    """Convert a parsed object, or decode one from JSON."""
    if isinstance(document, msgspec.Raw):
        return msgspec.json.decode(document, type=as_type)
    return msgspec.convert(document, as_type)
